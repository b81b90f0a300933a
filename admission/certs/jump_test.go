// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/internal/testutil"
)

// TestManagedAcrossAJump: leaves are renewed in time, and callers accept each of them, whether
// their own clock has jumped too, as on the same host, or not.
func TestManagedAcrossAJump(t *testing.T) {
	t.Parallel()
	testutil.EachJump(t, func(t *testing.T, jump time.Duration) {
		clock := testutil.NewJumpingClock()
		m := run(t, ManagedConfig{Client: fake.NewClientset(), Clock: clock, LeafLifetime: 6 * time.Hour, CALifetime: 6 * day})
		pause(time.Second)
		clock.Jump(jump)
		serials := map[string]bool{}
		for step := range 3 * 24 * 6 {
			for whose, now := range map[string]time.Time{"its own": time.Now(), "ours": clock.Now()} {
				if err := acceptsAt(m, m.CABundle(), "127.0.0.1", now); err != nil {
					t.Fatalf("step %d: a caller whose clock is %s: %v", step, whose, err)
				}
			}
			serials[m.current.Load().serving.Leaf.SerialNumber.String()] = true
			pause(10 * time.Minute)
		}
		if n := len(serials); n < 12 || n > 20 {
			t.Errorf("%d leaves in three days, want about one in four hours", n)
		}
	})
}

// TestKnownAcrossAJump: neither is a CA taken for known too early nor an hour late.
func TestKnownAcrossAJump(t *testing.T) {
	t.Parallel()
	testutil.EachJump(t, func(t *testing.T, jump time.Duration) {
		clock := testutil.NewJumpingClock()
		m := NewManaged(ManagedConfig{Client: fake.NewClientset(), Clock: clock})
		m.Registered(nil, false)
		clock.Jump(jump)
		pause(propagation - time.Nanosecond)
		if m.known(nil) {
			t.Error("it is known before every apiserver may have it")
		}
		pause(time.Nanosecond)
		if !m.known(nil) {
			t.Error("it is not known once every apiserver may have it")
		}
	})
}
