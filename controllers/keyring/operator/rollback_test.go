// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
)

func TestRollbackAsksFirst(t *testing.T) {
	t.Parallel()
	const breaksTokens, breaksWithdrawn = "is refused by each kube-apiserver that does not know", "has signed with the next key is refused"
	forget := func(w *world) { w.accepts = slices.DeleteFunc(w.accepts, func(id string) bool { return id == rsaID }) }
	down := func(w *world) {
		w.kube.PrependReactor("create", "*",
			func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("it is down") })
	}
	alone := func(w *world) { w.Cluster = nil }
	cases := map[string]struct {
		reason string
		phase  ring.Phase
		change func(*world)
		want   string // "" if it goes back
		breaks string
	}{
		"published": {phase: ring.Published},
		"published, it signs already": {
			"its tokens would be dead", ring.Published, func(w *world) { w.signer = private(w.t, testkeys.P256()) },
			"signs bound tokens with key " + p256ID + " already", breaksWithdrawn,
		},
		"published, another signs too": {
			"each is asked", ring.Published, secondSignsNext, "signs bound tokens with key " + p256ID + " already", breaksWithdrawn,
		},
		"published, it is down":    {"", ring.Published, down, "it is down: try again when it answers", breaksWithdrawn},
		"published, nobody to ask": {"", ring.Published, alone, "give --kubeconfig", breaksWithdrawn},
		"activated":                {phase: ring.Activated},
		"activated, it has forgotten": {
			"", ring.Activated, forget, "key " + rsaID + ", which signed before, cannot sign again yet: the apiserver refuses its tokens",
			breaksTokens,
		},
		"completed": {phase: ring.Completed},
		"completed, it has forgotten": {
			"every new token would be dead", ring.Completed, forget,
			"key " + rsaID + ", which signed before, cannot sign again yet: the apiserver refuses its tokens", breaksTokens,
		},
		"completed, it is down":    {"", ring.Completed, down, "it is down: try again when it answers", breaksTokens},
		"completed, nobody to ask": {"", ring.Completed, alone, "give --kubeconfig", breaksTokens},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.accepts = append(w.accepts, w.start(testkeys.P256()))
			if tc.phase != ring.Published {
				w.must(w.Activate(t.Context(), ActivateOptions{Force: true}))
			}
			if tc.phase == ring.Completed {
				w.must(w.Complete(t.Context(), ActivateOptions{}))
			}
			if tc.change != nil {
				tc.change(w)
			}
			err := w.Rollback(t.Context(), false)
			if tc.want != "" {
				refusedWith(t, err, tc.want)
				refusal, ok := errors.AsType[*ring.Refusal](err)
				if !ok {
					t.Fatalf("%s: %v is no refusal", tc.reason, err)
				}
				refusedWith(t, errors.New(refusal.Breaks), tc.breaks)
				if got := w.state().Phase(); got != tc.phase {
					t.Errorf("%s: phase %q", tc.reason, got)
				}
				err = w.Rollback(t.Context(), true)
			}
			w.must(err)
			if state := w.state(); state.Phase() != ring.RolledBack || state.Active().ID != rsaID {
				t.Errorf("%s: phase %q, %s signs", tc.reason, state.Phase(), state.Active().ID)
			}
		})
	}
}

func secondSignsNext(w *world) {
	other := newWorld(w.t)
	other.signer = private(w.t, testkeys.P256())
	w.Cluster.Others = []APIServer{{URL: "https://second.example", Client: other.kube}}
}
