// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testclock "k8s.io/utils/clock/testing"
)

// TestDamping has another client undo each write at once, and then waits.
func TestDamping(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason      string
		first, most time.Duration
		want        []time.Duration // between two writes
	}{
		"Doubles": {
			"kube-root-ca.crt comes back soon, and costs hardly any load", time.Second, 10 * time.Second,
			[]time.Duration{1e9, 2e9, 4e9, 8e9, 10e9, 10e9},
		},
		"Constant": {"one creation for an account in ten seconds", 10 * time.Second, 10 * time.Second, []time.Duration{10e9, 10e9, 10e9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := testclock.NewFakePassiveClock(time.Now())
			damping := NewDamping[string](tc.first, tc.most, clock)
			advance := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
			if delay, again := damping.Delay("a"), damping.Wrote("a"); delay != 0 || again {
				t.Errorf("the first write waits for %v, again %t", delay, again)
			}
			var got []time.Duration
			for n := range tc.want {
				delay := damping.Delay("a")
				got = append(got, delay)
				advance(delay / 2)
				if left := damping.Delay("a"); left != delay-delay/2 {
					t.Errorf("half of %v later %v are left", delay, left)
				}
				advance(delay - delay/2)
				if left, again := damping.Delay("a"), damping.Wrote("a"); left != 0 || again != (n > 0) {
					t.Errorf("after %v write %d waits for %v, again %t", delay, n+2, left, again)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if delay, again := damping.Delay("b"), damping.Wrote("b"); delay != 0 || again {
				t.Errorf("another object waits for %v, again %t", delay, again)
			}
			advance(2*tc.most + 1)
			if delay, again := damping.Delay("a"), damping.Wrote("a"); delay != 0 || again {
				t.Errorf("an object that was left alone waits for %v, again %t", delay, again)
			}
			if got := damping.Delay("a"); got != tc.first {
				t.Errorf("after that it begins with %v, want %v", got, tc.first)
			}
		})
	}
}

// TestDampingIsBounded: a tenant who makes and deletes objects all day takes no memory.
func TestDampingIsBounded(t *testing.T) {
	t.Parallel()
	damping := NewDamping[int](time.Hour, time.Hour, testclock.NewFakePassiveClock(time.Now()))
	for i := range 3 * dampedObjects {
		damping.Wrote(i)
	}
	kept := 0
	for i := range 3 * dampedObjects {
		if damping.Delay(i) > 0 {
			kept++
		}
	}
	if kept != dampedObjects {
		t.Errorf("it keeps %d objects, want the last %d", kept, dampedObjects)
	}
}
