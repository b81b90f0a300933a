// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"sa-controller-manager/internal/testutil"
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
		"NoLeader": {
			reason: "the webhook of a replica that waits", method: http.MethodPost, with: func(ctx context.Context) context.Context { return ctx },
		},
		"Leader":       {method: http.MethodPatch, with: always(false)},
		"Overdue":      {method: http.MethodPatch, with: always(true), refused: true},
		"OverdueReads": {reason: "harms nobody", method: http.MethodGet, with: always(true)},
		"WithoutCancel": {
			reason: "as internal/reconcile makes the context of a sync", method: http.MethodDelete, refused: true,
			with: func(ctx context.Context) context.Context { return context.WithoutCancel(always(true)(ctx)) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			base, body := &roundTripper{}, &closing{Reader: strings.NewReader("{}")}
			request, err := http.NewRequestWithContext(tc.with(t.Context()), tc.method, "https://localhost/", body)
			testutil.Must(t, err)
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

// TestOverdueAcrossAJump: a leader whose time of day has jumped does not write late, and
// goes on once it has renewed its lease.
func TestOverdueAcrossAJump(t *testing.T) {
	t.Parallel()
	const deadline = 10 * time.Second
	for name, tc := range map[string]struct {
		reason string
		jump   time.Duration
		atOnce bool
	}{
		"None":    {},
		"Forward": {reason: "a machine that was suspended looks the same", jump: time.Hour, atOnce: true},
		"Back":    {reason: "the clock that runs evenly counts as well", jump: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := testutil.NewJumpingClock()
				lock := &fencedLock{Interface: &recordingLock{}, deadline: deadline, now: clock.Now}
				expect := func(when string, want bool) {
					t.Helper()
					if got := lock.overdue(); got != want {
						t.Errorf("%s: %s: overdue is %v, want %v", tc.reason, when, got, want)
					}
				}
				renew := func() {
					t.Helper()
					testutil.Must(t, lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "us"}))
				}
				renew()
				time.Sleep(deadline / 2)
				expect("before the jump", false)
				clock.Jump(tc.jump)
				expect("after the jump", tc.atOnce)
				time.Sleep(deadline/2 - 1)
				expect("just before the deadline", tc.atOnce)
				time.Sleep(time.Nanosecond)
				expect("at the deadline", true)
				renew()
				expect("renewed", false)
				time.Sleep(deadline - 1)
				expect("just before the next deadline", false)
				time.Sleep(time.Nanosecond)
				expect("at the next deadline", true)
			})
		})
	}
}
