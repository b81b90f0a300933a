// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	// readyTimeout is how long a request waits for a plugin at most. It is upstream's
	// (k8s.io/apiserver pkg/admission/handler.go).
	readyTimeout = 10 * time.Second

	// readyPoll is how often a ready function is asked again that offers no channel.
	readyPoll = 50 * time.Millisecond
)

// errNotReady has upstream's words, because people search for them.
var errNotReady = errors.New("not yet ready to handle request")

// Handler is the base of a plugin: which operations it handles, and when it is ready.
// Plugins embed it and get Ready from it. It is configured before the first request;
// after that all methods but the setters may be used by several goroutines.
type Handler struct {
	operations []Operation
	ready      func() bool
	done       []<-chan struct{}
}

// NewHandler returns a Handler of the given operations, ready from the start.
func NewHandler(operations ...Operation) *Handler {
	return &Handler{operations: slices.Clone(operations)}
}

// Handles tells whether the plugin handles operation.
func (h *Handler) Handles(operation Operation) bool {
	return slices.Contains(h.operations, operation) || slices.Contains(h.operations, Any)
}

// Operations returns what was given to NewHandler, for the plugin's rules.
func (h *Handler) Operations() []Operation { return slices.Clone(h.operations) }

// SetReadyFunc makes the plugin ready once ready returns true, such as an informer's
// HasSynced. While a request waits, it is asked every 50 ms; where there is a channel,
// SetReadyChannels is better.
func (h *Handler) SetReadyFunc(ready func() bool) { h.ready = ready }

// SetReadyChannels makes the plugin ready once every channel is closed, such as those
// of an informer's HasSyncedChecker. It adds to what SetReadyFunc asks for.
func (h *Handler) SetReadyChannels(done ...<-chan struct{}) { h.done = slices.Clone(done) }

// WaitForReady returns nil once the plugin is ready; one that was never told when is
// ready always. It waits for at most ten seconds and never past the end of ctx, and
// then returns the reason for a refusal: "not yet ready to handle request".
func (h *Handler) WaitForReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, done := range h.done {
		if !awaitClosed(ctx, done) {
			return errNotReady
		}
	}
	if h.ready == nil || h.ready() || awaitTrue(ctx, h.ready) {
		return nil
	}
	return errNotReady
}

// Ready is WaitForReady under the name that Plugin wants.
func (h *Handler) Ready(ctx context.Context) error { return h.WaitForReady(ctx) }

// awaitClosed looks at done first: when ctx has ended as well, ready is the answer.
func awaitClosed(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

func awaitTrue(ctx context.Context, ready func() bool) bool {
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if ready() {
				return true
			}
		case <-ctx.Done():
			return ready()
		}
	}
}
