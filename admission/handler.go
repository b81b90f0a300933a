// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"time"
)

// readyTimeout is how long a request waits for a plugin at most. It is upstream's
// (k8s.io/apiserver pkg/admission/handler.go).
const readyTimeout = 10 * time.Second

// errNotReady has upstream's words, because people search for them.
var errNotReady = errors.New("not yet ready to handle request")

// Handler is the base of a plugin: when it is ready. Plugins embed it and get Ready from it.
// The zero Handler is ready from the start.
type Handler struct {
	synced []<-chan struct{}
}

// SetReadyChannels makes the plugin ready once every channel is closed, such as those
// of an informer's HasSyncedChecker. It is called before the first request.
func (h *Handler) SetReadyChannels(synced ...<-chan struct{}) { h.synced = synced }

// Ready returns nil once the plugin is ready; one that was never told when is ready always.
// It waits for at most ten seconds and never past the end of ctx, and then returns the
// reason for a refusal: "not yet ready to handle request".
func (h *Handler) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, synced := range h.synced {
		select {
		case <-synced:
			continue // also when ctx has ended as well
		default:
		}
		select {
		case <-synced:
		case <-ctx.Done():
			return errNotReady
		}
	}
	return nil
}
