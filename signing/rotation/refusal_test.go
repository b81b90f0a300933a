// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rotation_test

import (
	"testing"
	"time"

	"sa-controller-manager/signing/rotation"
)

// TestIsDone wants to be told that a step was made already, and only where nothing else can have
// been meant by asking for it.
func TestIsDone(t *testing.T) {
	t.Parallel()
	now := epoch.Add(10000 * time.Hour)
	for name, state := range phases(t) {
		_, activate := rotation.Activate(state, now, policy, true)
		_, complete := rotation.Complete(state, now, policy)
		if got, want := rotation.IsDone(activate), state.Phase() == rotation.Activated; got != want {
			t.Errorf("%s: activate is done: %t, want %t: %v", name, got, want, activate)
		}
		if got, want := rotation.IsDone(complete), state.Phase() == rotation.Completed; got != want {
			t.Errorf("%s: complete is done: %t, want %t: %v", name, got, want, complete)
		}
	}
}
