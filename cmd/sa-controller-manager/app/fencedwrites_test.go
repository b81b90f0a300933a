// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// roundTripper counts.
type roundTripper struct{ sent int }

func (r *roundTripper) RoundTrip(*http.Request) (*http.Response, error) {
	r.sent++
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// closing notes that it was closed.
type closing struct {
	*strings.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestFencedWrites(t *testing.T) {
	t.Parallel()
	always := func(answer bool) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return fenced(ctx, func() bool { return answer }) }
	}
	cases := map[string]struct {
		reason  string
		method  string
		with    func(context.Context) context.Context
		refused bool
	}{
		"NoLeader":       {reason: "the webhook of a replica that waits", method: http.MethodPost, with: func(ctx context.Context) context.Context { return ctx }},
		"Leader":         {method: http.MethodPatch, with: always(false)},
		"Overdue":        {method: http.MethodPatch, with: always(true), refused: true},
		"OverdueCreates": {method: http.MethodPost, with: always(true), refused: true},
		"OverdueReads":   {reason: "harms nobody", method: http.MethodGet, with: always(true)},
		"WithoutCancel": {
			reason: "as controllers/loop makes the context of a sync", method: http.MethodDelete, refused: true,
			with: func(ctx context.Context) context.Context { return context.WithoutCancel(always(true)(ctx)) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, body := &roundTripper{}, &closing{Reader: strings.NewReader("{}")}
			request, err := http.NewRequestWithContext(tc.with(t.Context()), tc.method, "https://localhost/", body)
			if err != nil {
				t.Fatal(err)
			}
			response, err := fencedWrites{base}.RoundTrip(request)
			if err == nil {
				response.Body.Close()
			}
			if errors.Is(err, errLeaseLost) != tc.refused || base.sent == 1 == tc.refused {
				t.Errorf("%s: sent %d times and the error %v, want refused: %v", tc.reason, base.sent, err, tc.refused)
			}
			if body.closed != tc.refused {
				t.Errorf("the body is closed: %v, want %v", body.closed, tc.refused)
			}
		})
	}
}

func TestOverdue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lock := &fencedLock{Interface: &renewable{}, deadline: 10 * time.Second}
		record := resourcelock.LeaderElectionRecord{HolderIdentity: "us"}
		for range 3 {
			if err := lock.Update(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10*time.Second - 1)
			if lock.overdue() {
				t.Error("it is overdue before the deadline")
			}
		}
		time.Sleep(time.Nanosecond)
		if !lock.overdue() {
			t.Error("it is not overdue at the deadline")
		}
	})
}

// renewable is a lock that anybody has.
type renewable struct{ resourcelock.Interface }

func (*renewable) Update(context.Context, resourcelock.LeaderElectionRecord) error { return nil }
