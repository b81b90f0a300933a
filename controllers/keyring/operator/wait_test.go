// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
)

// TestWaitForKubeAPIServer: a wait goes on while waiting may help, and otherwise ends with the reason.
func TestWaitForKubeAPIServer(t *testing.T) {
	t.Parallel()
	reviews := schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"}
	errOdd := errors.New("odd")
	forbidden := apierrors.NewForbidden(reviews, "", errors.New("no role"))
	cases := map[string]struct {
		reason  string
		trouble error         // of every review
		lasts   time.Duration // for how long
		change  func(*world)
		want    func(error) bool // nil if it is activated
	}{
		"no such account": {
			reason: "a name that is mistyped", change: func(w *world) { w.Cluster.Account = "nobody" }, want: apierrors.IsNotFound,
		},
		"forbidden":      {trouble: forbidden, lasts: time.Hour, want: apierrors.IsForbidden},
		"no credentials": {trouble: apierrors.NewUnauthorized("who?"), lasts: time.Hour, want: apierrors.IsUnauthorized},
		"anything else": {
			reason: "such as a discovery document without an issuer", trouble: errOdd, lasts: time.Hour,
			want: func(err error) bool { return errors.Is(err, errOdd) },
		},
		"it has just begun": {reason: "it has not read the roles yet", trouble: forbidden, lasts: 2 * pollInterval},
		"it is away": {
			reason: "it is being restarted", trouble: &url.Error{Op: "Post", URL: "https://a", Err: errors.New("connection refused")},
			lasts: time.Hour,
		},
		"it is not ready": {reason: "it is being restarted", trouble: apierrors.NewServiceUnavailable("starting"), lasts: time.Hour},
		"it is busy":      {reason: "it says so", trouble: apierrors.NewTooManyRequests("later", 1), lasts: time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.Clock = clock.RealClock{}
				w.accepts = append(w.accepts, w.start(testkeys.P256()))
				begin := time.Now()
				w.kube.PrependReactor("create", "tokenreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
					return time.Since(begin) < tc.lasts, nil, tc.trouble
				})
				if tc.change != nil {
					tc.change(w)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				err := w.Activate(ctx, ActivateOptions{Wait: true, Force: true})
				took := time.Since(begin)
				if tc.want == nil {
					if err != nil || w.state().Phase() != ring.Activated || took < tc.lasts || took > tc.lasts+2*pollInterval {
						t.Errorf("%s: phase %q after %s: %v", tc.reason, w.state().Phase(), took, err)
					}
					return
				}
				if !tc.want(err) || took > time.Minute {
					t.Errorf("%s: after %s: %v", tc.reason, took, err)
				}
			})
		})
	}
}

// gate holds a step until it has been asked often enough.
type gate struct {
	left  int
	later bool
	age   time.Duration // that is seen
}

func (g *gate) Look(context.Context, ring.State) []published.Seen {
	return []published.Seen{{Issuer: "https://issuer.example", CacheSeconds: int64(g.age.Seconds())}}
}

func (g *gate) Activate(context.Context, ring.State) error {
	if g.left--; g.left >= 0 {
		return &ring.Refusal{Reason: "not published", Remedy: "publish it", Later: g.later}
	}
	return nil
}

func (g *gate) Prune(ctx context.Context, state ring.State, _ string) error {
	return g.Activate(ctx, state)
}

// TestGate: a step waits for the gate if the gate says that this may help, and --force ignores it.
func TestGate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Clock = clock.RealClock{}
		w.accepts = append(w.accepts, w.start(testkeys.P256()))
		time.Sleep(policy.CacheAge)
		w.Gate = &gate{left: 1}
		refusedWith(t, w.Activate(t.Context(), ActivateOptions{Wait: true}), "not published")
		w.Gate = &gate{left: 3, later: true}
		begin := time.Now()
		w.must(w.Complete(t.Context(), ActivateOptions{Wait: true}))
		if took := time.Since(begin); took != 3*pollInterval {
			t.Errorf("it waited %s", took)
		}
	})
	w := newWorld(t)
	w.Gate = &gate{left: 1, age: 3 * policy.CacheAge}
	w.accepts = append(w.accepts, w.start(testkeys.P256()))
	if wait := w.state().Rotation.ActivateNotBefore; !wait.Equal(epoch.Add(3 * policy.CacheAge)) {
		t.Errorf("may sign from %s, although caches keep copies for three times the cache age", wait)
	}
	w.must(w.Complete(t.Context(), ActivateOptions{Force: true}))
	w.clock.Step(100 * time.Hour)
	prune := PruneOptions{IDs: []string{rsaID}}
	_, err := w.Prune(t.Context(), prune)
	refusedWith(t, err, "not published")
	_, err = w.Prune(t.Context(), prune)
	w.must(err)
}
