// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
)

// TestDeletedIsCreatedAgain: each time, with an Event that names the way out. While kube-apiserver does not reach the
// webhook, it binds nothing.
func TestDeletedIsCreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		r := run(t, a)
		pause(time.Second)
		for range 2 {
			a.remove(t, mutating)
			a.remove(t, validating)
			pause(2 * settleDelay)
			a.expect(t, "deleted", "mutate", "validate")
			wantState(t, r, Registered)
		}
		if len(a.recorded()) != 4 ||
			!strings.Contains(a.recorded()[0], "sa-controller-manager webhook unregister --kubeconfig=/etc/kubernetes/admin.conf, or ") {
			t.Errorf("Events: %q, want four that name the command", a.recorded())
		}
		a.breaks(errors.New(`failed calling webhook "` + mutateName + `": connection refused`))
		pause(2 * provenFor)
		a.remove(t, mutating)
		a.remove(t, validating)
		pause(time.Minute)
		a.expect(t, "deleted in an outage", "probe", "gone")
	})
}

func TestBreakGlass(t *testing.T) {
	off := func(o *object) *object { return o.annotated(AnnotationOff) }
	for name, tc := range map[string]struct {
		reason               string
		breaks               func(*testing.T, *apiserver)
		mutating, validating string
		event                string // part of the only one
	}{
		"unregister without objects": {
			breaks: func(t *testing.T, a *apiserver) {
				a.change(t, mutating, off)
				a.remove(t, validating)
				a.remove(t, mutating)
				testutil.Must(t, Unregister(t.Context(), a))
			},
		},
		"annotated and emptied": {
			reason: "the live read before a write finds it", breaks: func(t *testing.T, a *apiserver) {
				a.change(t, validating, off)
				a.change(t, mutating, func(o *object) *object { return o.with(nil) })
			},
			validating: "validate",
		},
		"annotated and deleted": {
			breaks: func(t *testing.T, a *apiserver) {
				a.change(t, mutating, off)
				a.remove(t, mutating)
				a.remove(t, validating)
			},
			mutating: "", validating: "gone", event: "without webhooks to keep that",
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			a := newAPIServer(t)
			r := run(t, a)
			pause(time.Second)
			tc.breaks(t, a)
			pause(time.Hour)
			wantState(t, r, Off)
			if got, want := r.Status().Detail, "sa-controller-manager webhook register "+
				"--kubeconfig=/etc/kubernetes/admin.conf"; !strings.HasSuffix(got, "; to switch it on: "+want) {
				t.Errorf("the status is %q, want it to end with %q", got, want)
			}
			a.expect(t, "switched off", tc.mutating, tc.validating)
			if events := a.recorded(); tc.event != "" && (len(events) != 1 || !strings.Contains(events[0], tc.event)) {
				t.Errorf("Events: %q, want one that says why it is there again", events)
			}
			testutil.CheckError(t, "ready, as it is switched off on purpose", "", r.Status().Check())
			testutil.Must(t, Register(t.Context(), a))
			pause(time.Second)
			wantState(t, r, Registered)
			a.expect(t, "switched on", "mutate", "validate")
		})
	}
}

// Another client that undoes every write does not make us flood kube-apiserver.
func TestDoesNotFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		run(t, a)
		pause(time.Minute)
		var fighting atomic.Bool
		fighting.Store(true)
		a.PrependReactor("update", "mutatingwebhookconfigurations", func(action clienttesting.Action) (bool, runtime.Object, error) {
			written := action.(clienttesting.UpdateAction).GetObject().(*admissionregistrationv1.MutatingWebhookConfiguration)
			if fighting.Load() && len(written.Webhooks) > 0 {
				emptied := written.DeepCopy()
				emptied.Webhooks = nil
				time.AfterFunc(time.Millisecond, func() { _ = a.Tracker().Update(action.GetResource(), emptied, "") })
			}
			return false, nil, nil
		})
		_, before := a.counts()
		a.change(t, mutating, func(o *object) *object { return o.with(nil) })
		pause(time.Minute)
		const want = writeBurst + int(time.Minute/writeInterval)
		if _, after := a.counts(); after-before < want-12 || after-before > want+2 {
			t.Errorf("%d writes in a minute, want about %d", after-before, want)
		}
		fighting.Store(false)
		pause(4 * writeInterval) // one write for the probe, and one for the rules that it proves
		a.expect(t, "after the fight", "mutate", "validate")
	})
}

func TestRepairs(t *testing.T) {
	changed := func(change func(*entry)) func(*object) *object {
		return func(o *object) *object {
			one := *o.entries[0].DeepCopy()
			change(&one)
			return o.with([]entry{one})
		}
	}
	for name, harm := range map[string]func(*object) *object{
		"caBundle": changed(func(e *entry) { e.ClientConfig.CABundle = []byte("rubbish") }),
		"policy":   changed(func(e *entry) { e.FailurePolicy = new(admissionregistrationv1.Ignore) }),
		"emptied":  func(o *object) *object { return o.with(nil) },
		"another webhook": func(o *object) *object {
			other := *o.entries[0].DeepCopy()
			other.Name = "other.example.org"
			return o.with(append(slices.Clone(o.entries), other))
		},
	} {
		for _, owner := range []string{"its first owner", "a new leader"} { // which has proved nothing yet
			testutil.Bubble(t, name+" by "+owner, func(t *testing.T) {
				a := newAPIServer(t)
				var want [kinds][]entry
				want[mutating], want[validating] = urlSpec().entries(a.accepted)
				if owner == "a new leader" {
					for k := range kinds {
						testutil.Must(t, k.in(a).put(t.Context(), harm((*object)(nil).with(want[k]))))
					}
				}
				r := run(t, a)
				pause(2 * time.Second)
				if owner == "its first owner" {
					for k := range kinds {
						a.change(t, k, harm)
					}
					synctest.Wait()
				}
				wantState(t, r, Registered)
				for k := range kinds {
					o := testutil.Get(k.in(a).get(t.Context()))(t)
					testutil.Check(t, k.String(), want[k], o.entries)
				}
			})
		}
	}
}
