// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"time"
)

// readyTimeout limits how long a request waits until a plugin is ready. It is upstream's
// (k8s.io/apiserver pkg/admission/handler.go).
const readyTimeout = 10 * time.Second

// errNotReady has upstream's text, because users search for it.
var errNotReady = errors.New("not yet ready to handle request")

// Handler implements Plugin.Ready. Plugins embed it. The zero Handler is ready.
type Handler struct {
	synced []<-chan struct{}
}

// SetReadyChannels makes the plugin ready once every channel is closed, such as the
// HasSyncedChecker of an informer. It must be called before the first request.
func (h *Handler) SetReadyChannels(synced ...<-chan struct{}) { h.synced = synced }

// Ready returns nil once all channels are closed. It waits for at most ten seconds, never past the
// end of ctx, and then returns "not yet ready to handle request".
func (h *Handler) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, synced := range h.synced {
		select {
		case <-synced:
			continue // even if ctx has ended too
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
