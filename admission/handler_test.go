// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestReady(t *testing.T) {
	t.Parallel()
	closedAfter := func(d time.Duration) <-chan struct{} {
		done := make(chan struct{})
		time.AfterFunc(d, func() { close(done) })
		return done
	}
	cases := map[string]struct {
		reason   string
		prepare  func(*Handler)
		deadline time.Duration // of the request, 0 for none
		want     error
		after    time.Duration
	}{
		"nothing set": {reason: "ready from the start", prepare: func(*Handler) {}},
		"the request ends first": {
			reason: "never past its deadline", prepare: func(h *Handler) { h.SetReadyChannels(make(chan struct{})) }, deadline: 3 * time.Second,
			want: errNotReady, after: 3 * time.Second,
		},
		"the request is patient": {
			reason: "ten seconds are the most", prepare: func(h *Handler) { h.SetReadyChannels(make(chan struct{})) }, deadline: time.Minute,
			want: errNotReady, after: 10 * time.Second,
		},
		"channel closes": {
			reason: "at that moment", prepare: func(h *Handler) { h.SetReadyChannels(closedAfter(1234 * time.Millisecond)) },
			after: 1234 * time.Millisecond,
		},
		"all channels": {
			reason: "the last one counts", prepare: func(h *Handler) { h.SetReadyChannels(closedAfter(2*time.Second), closedAfter(time.Second)) },
			after: 2 * time.Second,
		},
		"channel stays open": {
			reason: "the timeout ends", prepare: func(h *Handler) { h.SetReadyChannels(make(chan struct{})) }, want: errNotReady,
			after: 10 * time.Second,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &Handler{}
				tc.prepare(h)
				ctx := t.Context()
				if tc.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				start := time.Now()
				if got := h.Ready(ctx); got != tc.want { //nolint:errorlint // it is not wrapped
					t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
				}
				if took := time.Since(start); took != tc.after {
					t.Errorf("%s: took %s, want %s", tc.reason, took, tc.after)
				}
			})
		})
	}
}

func TestReadyBeatsAnEndedRequest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan struct{})
	close(done)
	h := &Handler{}
	h.SetReadyChannels(done)
	for range 100 {
		if err := h.Ready(ctx); err != nil {
			t.Fatalf("a ready plugin is not ready: %v", err)
		}
	}
}
