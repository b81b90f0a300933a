// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"errors"
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
	cases := map[string]struct {
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
			reason: "a write that fails is no renewal",
			steps: func(lock *fencedLock, inner *recordingLock) {
				inner.broken = true
				time.Sleep(8 * time.Second)
				_ = lock.Update(t.Context(), held)
				time.Sleep(8 * time.Second)
			},
			expired: deadline,
			holders: []string{"us"},
		},
		"ClockJumpsForward": {
			reason: "the lease is as good as it was",
			jump:   time.Hour,
			steps: func(lock *fencedLock, _ *recordingLock) {
				time.Sleep(8 * time.Second)
				_ = lock.Update(t.Context(), held)
				time.Sleep(8 * time.Second)
			},
			holders: []string{"us", "us"},
		},
		"ClockJumpsBack": {
			reason:  "the deadline does not wait for the time of day",
			jump:    -time.Hour,
			steps:   func(*fencedLock, *recordingLock) { time.Sleep(16 * time.Second) },
			expired: deadline,
			holders: []string{"us"},
		},
		"GivenAway": {
			steps:   func(lock *fencedLock, _ *recordingLock) { _ = lock.Update(t.Context(), free) },
			holders: []string{"us", ""},
		},
		"NotGivenAwayTooLate": {
			reason: "it may be somebody else's by now, which client-go's elector does not look at",
			steps: func(lock *fencedLock, _ *recordingLock) {
				time.Sleep(deadline + time.Second)
				if err := lock.Update(t.Context(), free); !errors.Is(err, errLeaseLost) {
					t.Errorf("got error %v, want %v", err, errLeaseLost)
				}
			},
			expired: deadline,
			holders: []string{"us"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner, clock := &recordingLock{}, testutil.NewJumpingClock()
				lock := &fencedLock{Interface: inner, deadline: deadline, now: clock.Now}
				testutil.Must(t, lock.Update(t.Context(), held))
				clock.Jump(tc.jump)
				begun, expired := time.Now(), time.Duration(0)
				end := lock.fence(func() { expired = time.Since(begun) })
				tc.steps(lock, inner)
				end()
				synctest.Wait()
				if expired != tc.expired {
					t.Errorf("%s: expired after %v, want %v", tc.reason, expired, tc.expired)
				}
				testutil.Check(t, tc.reason+": written holders", tc.holders, inner.holders)
			})
		})
	}
}
