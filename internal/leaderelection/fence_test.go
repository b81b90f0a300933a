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

// recordingLock takes every write but those that come while it is broken.
type recordingLock struct {
	resourcelock.Interface

	broken  bool
	holders []string
}

func (l *recordingLock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.broken {
		return errors.New("no answer")
	}
	l.holders = append(l.holders, record.HolderIdentity)
	return nil
}

func TestFence(t *testing.T) {
	t.Parallel()
	const deadline = 10 * time.Second
	held, free := resourcelock.LeaderElectionRecord{HolderIdentity: "us"}, resourcelock.LeaderElectionRecord{}
	for name, tc := range map[string]struct {
		reason  string
		jump    time.Duration // of the time of day, once the lease is had
		steps   func(lock *fencedLock, inner *recordingLock)
		expired time.Duration // 0: never
		holders []string
	}{
		"Renewed": {
			steps: func(lock *fencedLock, _ *recordingLock) {
				for range 5 {
					time.Sleep(8 * time.Second)
					_ = lock.Update(t.Context(), held)
				}
			},
			holders: []string{"us", "us", "us", "us", "us", "us"},
		},
		"NotRenewed": {
			reason: "a write that fails is no renewal", steps: func(lock *fencedLock, inner *recordingLock) {
				inner.broken = true
				time.Sleep(8 * time.Second)
				_ = lock.Update(t.Context(), held)
				time.Sleep(8 * time.Second)
			},
			expired: deadline, holders: []string{"us"},
		},
		"ClockJumpsForward": {
			reason: "the lease is as good as it was", jump: time.Hour, steps: func(lock *fencedLock, _ *recordingLock) {
				time.Sleep(8 * time.Second)
				_ = lock.Update(t.Context(), held)
				time.Sleep(8 * time.Second)
			},
			holders: []string{"us", "us"},
		},
		"ClockJumpsBack": {
			reason: "the deadline does not wait for the time of day", jump: -time.Hour,
			steps: func(*fencedLock, *recordingLock) { time.Sleep(16 * time.Second) }, expired: deadline, holders: []string{"us"},
		},
		"GivenAway": {steps: func(lock *fencedLock, _ *recordingLock) { _ = lock.Update(t.Context(), free) }, holders: []string{"us", ""}},
		"NotGivenAwayTooLate": {
			reason: "another process may have it by now, which client-go's elector does not look at", steps: func(lock *fencedLock, _ *recordingLock) {
				time.Sleep(deadline + time.Second)
				if err := lock.Update(t.Context(), free); !errors.Is(err, errLeaseLost) {
					t.Errorf("got error %v, want %v", err, errLeaseLost)
				}
			},
			expired: deadline, holders: []string{"us"},
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			inner, clock := &recordingLock{}, testutil.NewJumpingClock()
			lock := &fencedLock{Interface: inner, deadline: deadline, now: clock.Now}
			testutil.Must(t, lock.Update(t.Context(), held))
			clock.Jump(tc.jump)
			begun, expired := time.Now(), time.Duration(0)
			end := lock.fence(func() { expired = time.Since(begun) })
			tc.steps(lock, inner)
			end()
			synctest.Wait()
			testutil.Check(t, tc.reason+": expired", tc.expired, expired)
			testutil.Check(t, tc.reason+": written holders", tc.holders, inner.holders)
		})
	}
}

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
	for name, tc := range map[string]struct {
		reason, method string
		with           func(context.Context) context.Context
		refused        bool
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
	} {
		t.Run(name, func(t *testing.T) {
			base, body := &roundTripper{}, &closing{Reader: strings.NewReader("{}")}
			request := testutil.Get(http.NewRequestWithContext(tc.with(t.Context()), tc.method, "https://localhost/", body))(t)
			response, err := fencedWrites{base}.RoundTrip(request)
			if err == nil {
				response.Body.Close()
			}
			if errors.Is(err, errLeaseLost) != tc.refused || base.sent == 1 == tc.refused {
				t.Errorf("%s: sent %d times and the error %v, want refused: %v", tc.reason, base.sent, err, tc.refused)
			}
			testutil.Check(t, "the body is closed", tc.refused, body.closed)
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
		testutil.Bubble(t, name, func(t *testing.T) {
			clock := testutil.NewJumpingClock()
			lock := &fencedLock{Interface: &recordingLock{}, deadline: deadline, now: clock.Now}
			expect := func(when string, want bool) {
				t.Helper()
				testutil.Check(t, tc.reason+": "+when+": overdue", want, lock.overdue())
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
	}
}
