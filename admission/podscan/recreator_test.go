// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
)

// patience ends between two tries, so that their number is certain.
const patience = time.Minute + pollInterval/2

// controllers is a world with a controller that creates Pods anew.
type controllers struct {
	*world

	// evicts is what an eviction is answered with, before the Pod goes.
	evicts func(n int) error
	// successor is what the controller creates, nil for nothing. It comes after delay.
	successor func() *corev1.Pod
	delay     time.Duration
	evictions int
	unbound   []string // evictions without the Pod's UID
}

func newControllers(objects ...runtime.Object) *controllers {
	c := &controllers{
		world:  newWorld(append(objects, accountNamed("shop", "default"))...),
		evicts: func(int) error { return nil },
	}
	c.admits = func(pod *corev1.Pod) error { pod.Spec.ServiceAccountName = "default"; return nil }
	c.successor = func() *corev1.Pod { return web("new", of("default"), mounted) }
	c.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		return true, nil, c.evict(action.(clienttesting.CreateActionImpl).Object.(*policyv1.Eviction))
	})
	return c
}

func (c *controllers) evict(eviction *policyv1.Eviction) error {
	c.evictions++
	if p := eviction.DeleteOptions.Preconditions; p == nil || p.UID == nil {
		c.unbound = append(c.unbound, eviction.Name)
	}
	if err := c.evicts(c.evictions); err != nil {
		return err
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	if err := c.Tracker().Delete(pods, eviction.Namespace, eviction.Name); err != nil {
		return err
	}
	if successor := c.successor(); successor != nil {
		successor.Name = fmt.Sprintf("%s-%d", successor.Name, c.evictions)
		successor.UID = types.UID(successor.Name)
		time.AfterFunc(c.delay, func() { _ = c.Tracker().Add(successor) })
	}
	return nil
}

// web is a Pod of the ReplicaSet of that name.
func web(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	return newPod(append([]func(*corev1.Pod){named("shop", name), owned("apps/v1", "ReplicaSet")}, changes...)...)
}

func ready(pod *corev1.Pod) {
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func TestRecreate(t *testing.T) {
	t.Parallel()
	replicaSet := &appsv1.ReplicaSet{ObjectMeta: ownerMeta()}
	budget := apierrors.NewTooManyRequests("the budget says no", 0)
	cases := map[string]struct {
		reason    string
		objects   []runtime.Object
		change    func(*controllers)
		dryRun    bool
		want      []string
		evictions int
		err       string
	}{
		"Replaced": {
			objects: []runtime.Object{replicaSet, web("a"), web("b")}, evictions: 2,
			want: []string{"shop/a replaced: by new-1", "shop/b replaced: by new-2"},
		},
		"Slowly": {
			objects: []runtime.Object{replicaSet, web("a")}, evictions: 1,
			change: func(c *controllers) { c.delay = patience / 2 },
			want:   []string{"shop/a replaced: by new-1"},
		},
		"NoSuccessor": {
			objects: []runtime.Object{replicaSet, web("a")}, evictions: 1,
			change: func(c *controllers) { c.successor = func() *corev1.Pod { return nil } },
			want:   []string{"shop/a evicted: ReplicaSet/web has created none in 1m0.5s"},
		},
		"ReadyInTheEnd": {
			reason:  "the next Pod must not go while this one has no substitute",
			objects: []runtime.Object{replicaSet, web("a", ready)}, evictions: 1,
			change: func(c *controllers) {
				c.successor = func() *corev1.Pod { return web("new", of("default"), mounted, ready) }
			},
			want: []string{"shop/a replaced: by new-1"},
		},
		"NeverReady": {
			objects: []runtime.Object{replicaSet, web("a", ready)}, evictions: 1,
			want: []string{"shop/a replaced: by new-1, which is not ready yet"},
		},
		"SuccessorHasEnded": {
			reason:  "a Job's may be quick",
			objects: []runtime.Object{job(), newPod(named("shop", "a"), owned("batch/v1", "Job"))}, evictions: 1,
			change: func(c *controllers) {
				c.successor = func() *corev1.Pod { return web("new", of("default"), mounted, phase(corev1.PodSucceeded)) }
			},
			want: []string{"shop/a replaced: by new-1"},
		},
		"NoBetter": {
			reason:  "it must not go on",
			objects: []runtime.Object{replicaSet, web("a"), web("b"), newPod(named("shop", "bare"))}, evictions: 1,
			change: func(c *controllers) { c.successor = func() *corev1.Pod { return web("new") } },
			want: []string{
				"shop/a no-better: new-1 lacks its account, token",
				"shop/b left: not tried: another one was no better than before",
				"shop/bare left: no controller owns it",
			},
		},
		"DryRun": {
			objects: []runtime.Object{replicaSet, web("a"), newPod(named("shop", "bare"))}, dryRun: true,
			want: []string{"shop/a planned: ReplicaSet/web creates it anew", "shop/bare left: no controller owns it"},
		},
		"NoWebhook": {
			objects: []runtime.Object{replicaSet, web("a")},
			change:  func(c *controllers) { c.admits = func(*corev1.Pod) error { return nil } },
			want:    []string{"shop/a left: a new Pod would have no account either: the webhook is not called here"},
		},
		"TrialRefused": {
			objects: []runtime.Object{replicaSet, web("a")},
			change:  func(c *controllers) { c.admits = func(*corev1.Pod) error { return errors.New("policy") } },
			want:    []string{"shop/a left: a trial Pod is refused: policy"},
		},
		"BudgetForNow": {
			objects: []runtime.Object{replicaSet, web("a")}, evictions: 4,
			change: func(c *controllers) {
				c.evicts = func(n int) error {
					if n < 4 {
						return budget
					}
					return nil
				}
			},
			want: []string{"shop/a replaced: by new-4"},
		},
		"BudgetForGood": {
			objects: []runtime.Object{replicaSet, web("a")}, evictions: 61,
			change: func(c *controllers) { c.evicts = func(int) error { return budget } },
			want:   []string{"shop/a left: the budget says no"},
		},
		"TwoBudgets": {
			objects: []runtime.Object{replicaSet, web("a")}, evictions: 1,
			change: func(c *controllers) {
				c.evicts = func(int) error { return apierrors.NewInternalError(errors.New("more than one")) }
			},
			want: []string{"shop/a left: Internal error occurred: more than one"},
		},
		"GoneMeanwhile": {
			objects: []runtime.Object{replicaSet, web("a")}, evictions: 1,
			change: func(c *controllers) {
				c.evicts = func(int) error {
					_ = c.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "shop", "a")
					return apierrors.NewNotFound(corev1.Resource("pods"), "a")
				}
			},
			want: []string{"shop/a gone"},
		},
		"ConflictOfAnotherSort": {
			reason:  "the Pod is still there, so that nothing is healed",
			objects: []runtime.Object{replicaSet, web("a")}, evictions: 61,
			change: func(c *controllers) {
				c.evicts = func(int) error { return apierrors.NewConflict(corev1.Resource("pods"), "a", errors.New("later")) }
			},
			want: []string{`shop/a left: Operation cannot be fulfilled on pods "a": later`},
		},
		"NotAllowed": {
			objects: []runtime.Object{replicaSet, web("a")}, evictions: 1,
			change: func(c *controllers) {
				c.evicts = func(int) error { return apierrors.NewForbidden(corev1.Resource("pods"), "a", errors.New("no")) }
			},
			err: `have Pod shop/a created anew: evict it: pods "a" is forbidden: no`,
		},
		"JobUpToItsLimit": {
			objects: []runtime.Object{
				job(func(job *batchv1.Job) { job.Spec.BackoffLimit = new(int32(1)) }),
				newPod(named("shop", "a"), owned("batch/v1", "Job")), newPod(named("shop", "b"), owned("batch/v1", "Job")),
			},
			evictions: 1,
			want:      []string{"shop/a replaced: by new-1", "shop/b left: Job/web would fail: backoffLimit is 1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newControllers(tc.objects...)
				found, err := c.finder().Find(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				if tc.change != nil {
					tc.change(c)
				}
				var got []string
				r := Recreator{Finder: c.finder(), Patience: patience, DryRun: tc.dryRun}
				err = r.Run(t.Context(), found.Missed, func(pod *Pod, result Result) {
					got = append(got, pod.String()+" "+result.String())
				})
				if text := fmt.Sprint(err); err != nil && text != tc.err || err == nil && tc.err != "" {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s\nresults (-want +got):\n%s", tc.reason, diff)
				}
				if c.evictions != tc.evictions || len(c.unbound) > 0 {
					t.Errorf("%s\n%d evictions, want %d; without UID: %v", tc.reason, c.evictions, tc.evictions, c.unbound)
				}
			})
		})
	}
}

// One Pod goes after the other: with two at once, a workload of two would be down.
func TestRecreateOneAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newControllers(&appsv1.ReplicaSet{ObjectMeta: ownerMeta()}, web("a", ready), web("b", ready))
		c.delay = 10 * time.Second
		c.successor = func() *corev1.Pod { return web("new", of("default"), mounted, ready) }
		begun := time.Now()
		var at []time.Duration
		c.evicts = func(int) error {
			at = append(at, time.Since(begun))
			return nil
		}
		found, err := c.finder().Find(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		err = Recreator{Finder: c.finder(), Patience: patience}.Run(t.Context(), found.Missed, func(*Pod, Result) {})
		if err != nil || len(at) != 2 || at[1]-at[0] < c.delay {
			t.Errorf("evictions at %v, %v; want two that are %v apart", at, err, c.delay)
		}
	})
}

// Ctrl-C ends it with an error, and not as if nobody had created anything.
func TestRecreateIsCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newControllers(&appsv1.ReplicaSet{ObjectMeta: ownerMeta()}, web("a"))
		c.successor = func() *corev1.Pod { return nil }
		found, err := c.finder().Find(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), patience/2, errors.New("enough"))
		defer cancel()
		err = Recreator{Finder: c.finder(), Patience: patience}.Run(ctx, found.Missed, func(*Pod, Result) {
			t.Error("there is a result")
		})
		if want := "have Pod shop/a created anew: await its successor: enough"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	})
}
