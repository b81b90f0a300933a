// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
)

// meanwhile does something at the time of the next proof.
func (w *world) meanwhile(do func()) {
	done := false
	w.kube.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !done {
			done = true
			do()
		}
		return false, nil, nil // the world answers
	})
}

// TestAnswersAreOfTheRingThatWasLookedAt: somebody turns to another key while kube-apiserver is
// asked about this one.
func TestAnswersAreOfTheRingThatWasLookedAt(t *testing.T) {
	t.Parallel()
	t.Run("activate", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.accepts = append(w.accepts, w.start(testkeys.P256()))
		w.meanwhile(func() {
			w.must(w.Rollback(t.Context(), true))
			w.start(testkeys.P384())
		})
		err := w.Activate(t.Context(), ActivateOptions{Force: true})
		if _, stale := errors.AsType[*ring.StaleError](err); !stale {
			t.Errorf("activate: %v", err)
		}
		if state := w.state(); state.Phase() != ring.Published || state.Active().ID != rsaID {
			t.Errorf("phase %q, %s signs", state.Phase(), state.Active().ID)
		}
	})
	t.Run("roll back", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.accepts = append(w.accepts, w.start(testkeys.P256()))
		w.must(w.Activate(t.Context(), ActivateOptions{Force: true}))
		w.meanwhile(func() { w.must(w.Complete(t.Context(), ActivateOptions{})) })
		err := w.Rollback(t.Context(), false)
		if _, stale := errors.AsType[*ring.StaleError](err); !stale || w.state().Phase() != ring.Completed {
			t.Errorf("phase %q after %v", w.state().Phase(), err)
		}
	})
}
