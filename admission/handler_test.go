// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestHandles(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason    string
		handler   *Handler
		operation Operation
		want      bool
	}{
		"named":     {reason: "it was given", handler: NewHandler(Create, Delete), operation: Delete, want: true},
		"not named": {reason: "it was not", handler: NewHandler(Create, Delete), operation: Connect},
		"any":       {reason: "the star is all", handler: NewHandler(Any), operation: "EVICT", want: true},
		"none":      {reason: "nothing was given", handler: NewHandler(), operation: Create},
	} {
		if got := tc.handler.Handles(tc.operation); got != tc.want {
			t.Errorf("%s: %s: got %t, want %t", name, tc.reason, got, tc.want)
		}
	}
}

func TestWaitForReady(t *testing.T) {
	t.Parallel()
	closedAfter := func(d time.Duration) <-chan struct{} {
		done := make(chan struct{})
		time.AfterFunc(d, func() { close(done) })
		return done
	}
	trueAfter := func(d time.Duration) func() bool {
		at := time.Now().Add(d)
		return func() bool { return !time.Now().Before(at) }
	}
	never := func() bool { return false }
	cases := map[string]struct {
		reason   string
		prepare  func(*Handler)
		deadline time.Duration // of the request, 0 for none
		want     error
		after    time.Duration
	}{
		"nothing set":            {reason: "ready from the start", prepare: func(*Handler) {}},
		"func is true":           {reason: "no wait", prepare: func(h *Handler) { h.SetReadyFunc(trueAfter(0)) }},
		"func becomes true":      {reason: "seen at the next poll", prepare: func(h *Handler) { h.SetReadyFunc(trueAfter(time.Second)) }, after: time.Second},
		"func between two polls": {reason: "the poll is short", prepare: func(h *Handler) { h.SetReadyFunc(trueAfter(1010 * time.Millisecond)) }, after: 1050 * time.Millisecond},
		"func stays false":       {reason: "patience ends after ten seconds", prepare: func(h *Handler) { h.SetReadyFunc(never) }, want: errNotReady, after: 10 * time.Second},
		"the request ends first": {reason: "never past its deadline", prepare: func(h *Handler) { h.SetReadyFunc(never) }, deadline: 3 * time.Second, want: errNotReady, after: 3 * time.Second},
		"the request is patient": {reason: "ten seconds are the most", prepare: func(h *Handler) { h.SetReadyFunc(never) }, deadline: time.Minute, want: errNotReady, after: 10 * time.Second},
		"true at the deadline":   {reason: "one last look", prepare: func(h *Handler) { h.SetReadyFunc(trueAfter(1020 * time.Millisecond)) }, deadline: 1020 * time.Millisecond, after: 1020 * time.Millisecond},
		"channel closes":         {reason: "at that moment", prepare: func(h *Handler) { h.SetReadyChannels(closedAfter(1234 * time.Millisecond)) }, after: 1234 * time.Millisecond},
		"all channels":           {reason: "the last one counts", prepare: func(h *Handler) { h.SetReadyChannels(closedAfter(2*time.Second), closedAfter(time.Second)) }, after: 2 * time.Second},
		"channel stays open":     {reason: "patience ends", prepare: func(h *Handler) { h.SetReadyChannels(make(chan struct{})) }, want: errNotReady, after: 10 * time.Second},
		"channel and func":       {reason: "both count", prepare: func(h *Handler) { h.SetReadyChannels(closedAfter(time.Second)); h.SetReadyFunc(never) }, want: errNotReady, after: 10 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := NewHandler(Create)
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
	h := NewHandler(Create)
	h.SetReadyChannels(done)
	h.SetReadyFunc(func() bool { return true })
	for range 100 {
		if err := h.WaitForReady(ctx); err != nil {
			t.Fatalf("a ready plugin is not ready: %v", err)
		}
	}
}
