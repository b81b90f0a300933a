// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"errors"
	"fmt"
	"testing"
)

// TestMoveToHSM moves the key of a cluster from a file to an HSM that has a spare, as docs/backends.md has it: that is an
// end state without a finding or an alert. Then the HSM is gone for good, and a rollback, the way that costs least, needs
// nothing of it.
func TestMoveToHSM(t *testing.T) {
	w := newWorld(t, "--algorithm=P-256")
	w.signs(t)
	hsm, kubeconfig := newToken(t), "--kubeconfig="+w.cluster.Kubeconfig()
	for _, name := range []string{"hsm", "spare"} {
		nameKey(t, w.path("keys"), name, hsm.make(t, name, "P-256"), "P-256")
	}
	eventually(t, "the key of the HSM as the next one", func() error {
		return w.keys(t.Context(), "next", "--key=kep740:hsm", kubeconfig)
	})
	eventually(t, "the rotation, once the spare key has its socket", func() error {
		return w.keys(t.Context(), "rotate", "--wait", "--next-key=kep740:spare", "--cache-age=0s", kubeconfig)
	})
	w.signsWithAnotherKey(t)
	eventually(t, "a key ring without a finding", func() error {
		metrics, err := w.manager.Metrics(t.Context())
		if err != nil {
			return err
		}
		// SACMBackendAway and SACMNoNextKey compare these.
		if up, next := metrics.Sum("sacm_backend_up", nil), metrics.Sum("sacm_key_ring_next_key", nil); up != 2 || next != 1 {
			return fmt.Errorf("%v signers are up, want 2; %v next keys, want 1", up, next)
		}
		return w.keys(t.Context(), "list", kubeconfig)
	})
	w.accepted(t)

	w.killHelper(t)
	eventually(t, "the rollback", func() error { return w.keys(t.Context(), "rollback", kubeconfig) })
	w.signsWithAnotherKey(t)
	w.accepted(t)
	if first, last := w.tokens[0].KeyID, w.tokens[len(w.tokens)-1].KeyID; first != last {
		t.Errorf("key %s signs, want the previous one, %s", last, first)
	}
}

// signsWithAnotherKey awaits a token of another key than that of the last one.
func (w *world) signsWithAnotherKey(t *testing.T) {
	t.Helper()
	previous := w.tokens[len(w.tokens)-1].KeyID
	eventually(t, "a token of the new key", func() error {
		w.signs(t)
		if w.tokens[len(w.tokens)-1].KeyID == previous {
			return errors.New("the previous key signs")
		}
		return nil
	})
}
