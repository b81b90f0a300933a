// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/signing/keydir"
	"sa-controller-manager/signing/rotation"
	"sa-controller-manager/signing/testkeys"
)

// leave puts the ring into the state that a writer leaves which was killed before it had cleared up.
func (w *world) leave() (leftover string) {
	w.t.Helper()
	state := w.state().Clone()
	state.Generation++
	state.Leftovers = []string{"key-gone.pem"}
	data, err := rotation.Encode(state)
	w.must(err)
	leftover = filepath.Join(w.Dir.Path(), state.Leftovers[0])
	w.must(os.WriteFile(leftover, nil, 0o600))
	w.must(os.WriteFile(filepath.Join(w.Dir.Path(), "ring.json"), data, 0o600))
	return leftover
}

// TestAfterAKilledWriter: whoever comes next clears up, which is a change of the ring too, and does its own work.
func TestAfterAKilledWriter(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		from, to rotation.Phase
		do       func(*world) error
		asked    int // how often kube-apiserver is
	}{
		"activate":            {rotation.Published, rotation.Activated, func(w *world) error { return w.Activate(w.t.Context(), ActivateOptions{Force: true}) }, 1},
		"complete":            {rotation.Activated, rotation.Completed, func(w *world) error { return w.Complete(w.t.Context(), ActivateOptions{}) }, 0},
		"withdraw":            {rotation.Published, rotation.RolledBack, func(w *world) error { return w.Rollback(w.t.Context(), false) }, 0},
		"roll back":           {rotation.Activated, rotation.RolledBack, func(w *world) error { return w.Rollback(w.t.Context(), false) }, 1},
		"roll back completed": {rotation.Completed, rotation.RolledBack, func(w *world) error { return w.Rollback(w.t.Context(), false) }, 1},
		"prune": {rotation.Completed, rotation.Completed, func(w *world) error {
			_, err := w.Prune(w.t.Context(), PruneOptions{IDs: []string{rsaID}, Force: true})
			return err
		}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.accepts = append(w.accepts, w.start(testkeys.P256()))
			if tc.from != rotation.Published {
				w.must(w.Activate(t.Context(), ActivateOptions{Force: true}))
			}
			if tc.from == rotation.Completed {
				w.must(w.Complete(t.Context(), ActivateOptions{}))
			}
			leftover, before := w.leave(), w.reviews
			w.must(tc.do(w))
			if state := w.state(); state.Phase() != tc.to || len(state.Leftovers) > 0 {
				t.Errorf("phase %q with leftovers %v, want %q", state.Phase(), state.Leftovers, tc.to)
			}
			if _, err := os.Stat(leftover); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is there still: %v", leftover, err)
			}
			if asked := w.reviews - before; asked != tc.asked {
				t.Errorf("kube-apiserver was asked %d times, want %d", asked, tc.asked)
			}
		})
	}
}

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

// TestAnswersAreOfTheRingThatWasLookedAt: somebody turns to another key while kube-apiserver is asked about this one.
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
		refusedWith(t, w.Activate(t.Context(), ActivateOptions{Force: true}), "cannot sign yet: the apiserver refuses its tokens")
		if state := w.state(); state.Phase() != rotation.Published || state.Active().ID != rsaID {
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
		if _, stale := errors.AsType[*keydir.StaleError](err); !stale || w.state().Phase() != rotation.Completed {
			t.Errorf("phase %q after %v", w.state().Phase(), err)
		}
	})
}

// TestDoneAlready: a command that was killed after it had done its work, or that somebody else was faster with.
func TestDoneAlready(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.accepts = append(w.accepts, w.start(testkeys.P256()))
	force := ActivateOptions{Force: true}
	w.must(w.Activate(t.Context(), force))
	if err := w.Activate(t.Context(), force); !rotation.IsDone(err) {
		t.Errorf("activate again: %v", err)
	}
	w.must(w.Complete(t.Context(), force))
	if err := w.Complete(t.Context(), force); !rotation.IsDone(err) {
		t.Errorf("complete again: %v", err)
	}
	if err := w.Activate(t.Context(), force); err == nil || rotation.IsDone(err) {
		t.Errorf("activate after the end: %v, want to be told to start another rotation", err)
	}

	w.accepts = append(w.accepts, w.start(testkeys.P384()))
	w.meanwhile(func() { w.must(w.Activate(t.Context(), ActivateOptions{Force: true, SkipProof: true})) })
	w.must(w.Complete(t.Context(), force))
	if phase := w.state().Phase(); phase != rotation.Completed {
		t.Errorf("phase %q, though somebody else has made a step of it only", phase)
	}
}
