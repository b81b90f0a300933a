// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring_test

import (
	"testing"
	"time"

	"sa-controller-manager/signing/ring"
)

// TestIsDone wants to be told that a step was made already, and only where nothing else can have
// been meant by asking for it.
func TestIsDone(t *testing.T) {
	t.Parallel()
	now := epoch.Add(10000 * time.Hour)
	for name, state := range phases(t) {
		_, activate := ring.Activate(state, now, policy, true)
		_, complete := ring.Complete(state, now, policy)
		if got, want := ring.IsDone(activate), state.Phase() == ring.Activated; got != want {
			t.Errorf("%s: activate is done: %t, want %t: %v", name, got, want, activate)
		}
		if got, want := ring.IsDone(complete), state.Phase() == ring.Completed; got != want {
			t.Errorf("%s: complete is done: %t, want %t: %v", name, got, want, complete)
		}
	}
}
