// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/testutil"
)

// TestDeletedIsCreatedAgain: each time, with an Event that names the way out. While kube-apiserver does not reach the
// webhook, it binds nothing.
func TestDeletedIsCreatedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, r := registers(t)
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
			a, r := registers(t)
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
		_, after := a.counts()
		testutil.Expect(t, after-before >= want-12 && after-before <= want+2, "%d writes in a minute, want about %d", after-before, want)
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

// shown are the states that the metric shows.
func shown(registry metrics.KubeRegistry) []string {
	return slices.DeleteFunc(testutil.Series(registry, "sacm_webhook_registration_state"),
		func(line string) bool { return strings.HasSuffix(line, " 0") })
}

// series is what it shows in a state.
func stateSeries(state State) []string {
	return []string{fmt.Sprintf("sacm_webhook_registration_state{state=%q} 1", state)}
}

// TestStateIsShown: nobody is unprotected in silence. The metric of the leader shows that the
// webhook is off, and every replica says so.
func TestStateIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		registry := metrics.NewKubeRegistry()
		r := run(t, a, func(c *Config) { c.Metrics = NewMetrics(registry.MustRegister) })
		others := metrics.NewKubeRegistry()
		config := a.config()
		config.ServingCA, config.Metrics = &servingCA{}, NewMetrics(others.MustRegister)
		other := New(config)
		testutil.Start(t, other.Run)
		for _, step := range []struct {
			do    func()
			want  State
			other string // what a replica that does not lead says
		}{
			{do: func() {}, want: Registered, other: "the webhook is bound"},
			{do: func() {
				a.change(t, validating, func(o *object) *object { return o.annotated(AnnotationOff) })
			}, want: Off, other: "off: annotation"},
			{do: func() {
				a.change(t, validating, func(o *object) *object { return o.annotated("") })
			}, want: Registered, other: "the webhook is bound"},
		} {
			step.do()
			pause(time.Second)
			wantState(t, r, step.want)
			testutil.Check(t, "the metric", stateSeries(step.want), shown(registry))
			if got := other.Status(); got.State != Idle || !strings.Contains(got.Detail, step.other) {
				t.Errorf("a replica that does not lead says %q, want %q in it", got, step.other)
			}
			testutil.Check(t, "the metric of a replica that does not lead", stateSeries(Idle), shown(others))
		}
	})
}

// TestFollowerKnowsWhatIsRegistered: each replica has its own serving certificate, and must
// know by itself what kube-apiserver verifies it with. It writes nothing.
func TestFollowerKnowsWhatIsRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		config, ca := a.config(), &servingCA{bundle: []byte("of the follower")}
		config.ServingCA = ca
		follower := New(config)
		testutil.Start(t, follower.Run)
		pause(time.Minute)
		_, writes := a.counts()
		testutil.Require(t, writes == 0 && len(ca.has()) == 0, "a replica that does not lead has written %d times and knows %q", writes,
			ca.has())
		run(t, a)
		pause(time.Minute)
		if got := ca.has(); len(got) != 1 || got[0] != string(a.accepted) || !ca.inherited {
			t.Errorf("registered is %q, inherited %t; want what the leader has written", got, ca.inherited)
		}
		end := testutil.Start(t, follower.Lead)
		pause(time.Second)
		testutil.Expect(t, !ca.inherited, "what a leader has seen once is still taken for that of another one")
		end()
		pause(time.Second)
		testutil.Expect(t, ca.inherited, "a replica that no longer leads takes what is written for its own")
	})
}

func TestIsInactive(t *testing.T) {
	t.Parallel()
	const mutating, validating = "the MutatingWebhookConfiguration " + Name, "the ValidatingWebhookConfiguration " + Name
	for name, tc := range map[string]struct {
		mutating, validating *object
		fails                error // to read the validating one
		want                 string
	}{
		"None":        {},
		"Active":      {mutating: stored("", mutateName), validating: stored("", validateName), want: mutating},
		"BeingProved": {mutating: stored("", probeName), validating: stored(""), want: mutating},
		"Off":         {mutating: stored(AnnotationOff), validating: stored(AnnotationOff)},
		"OffAndBound": {mutating: stored(AnnotationOff, mutateName), want: mutating},
		"OneIsOff":    {mutating: stored(AnnotationOff), validating: stored("", validateName), want: validating},
		"Unread":      {fails: errors.New("boom"), want: "read " + validating + ": boom"}, // that is not inactive
	} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if tc.mutating != nil {
				objects = append(objects, kind(0).typed(tc.mutating))
			}
			if tc.validating != nil {
				objects = append(objects, kind(1).typed(tc.validating))
			}
			if tc.want != "" && tc.fails == nil {
				tc.want += " still binds a webhook"
			}
			client := fake.NewClientset(objects...)
			client.PrependReactor("get", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
				return tc.fails != nil, nil, tc.fails
			})
			testutil.CheckError(t, name, tc.want, IsInactive(t.Context(), client))
		})
	}
}

// stored is a configuration with an annotation and webhooks.
func stored(annotation string, webhooks ...string) *object {
	o := &object{meta: metav1.ObjectMeta{Name: Name, UID: "uid", ResourceVersion: "7"}}
	if annotation != "" {
		o.meta.Annotations = map[string]string{Annotation: annotation}
	}
	for _, name := range webhooks {
		o.entries = append(o.entries, entry{Name: name})
	}
	return o
}

// TestCompletedPodsAreSkipped has kube-apiserver's own code evaluate the conditions.
func TestCompletedPodsAreSkipped(t *testing.T) {
	t.Parallel()
	const mark = "sa-controller-manager:default"
	marked := func(change func(*podRequest)) podRequest {
		r := podRequest{operation: apiadmission.Create, pod: corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: mark},
			Spec:       corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{}}},
		}}
		r.pod.SetSelfLink(mark)
		change(&r)
		return r
	}
	marks := func(uid types.UID, link string, dryRun bool) func(*podRequest) {
		return func(r *podRequest) {
			r.pod.UID, r.dryRun = uid, dryRun
			r.pod.SetSelfLink(link)
		}
	}
	annotated := func(key string) func(*podRequest) {
		return func(r *podRequest) { r.pod.Annotations = map[string]string{key: ""} }
	}
	for name, tc := range map[string]struct {
		request              podRequest
		mutating, validating bool // whether it is skipped
	}{
		"Marked":         {request: marked(func(*podRequest) {}), mutating: true, validating: true},
		"BeforeTheUID":   {request: marked(func(r *podRequest) { r.pod.UID = "3f2c" }), validating: true},
		"WithoutLink":    {request: marked(marks(mark, "", false)), mutating: true},
		"Unmarked":       {request: marked(marks("", "", false))},
		"OtherAccount":   {request: marked(func(r *podRequest) { r.pod.Spec.ServiceAccountName = "other" })},
		"NoAccount":      {request: marked(func(r *podRequest) { r.pod.Spec.ServiceAccountName = "" })},
		"OtherPrefix":    {request: marked(marks("default", "default", false))},
		"PrefixAlone":    {request: marked(marks("sa-controller-manager:", "sa-controller-manager:", false))},
		"DryRun":         {request: marked(marks(mark, "", true)), mutating: true, validating: true},
		"UnmarkedDryRun": {request: marked(marks("", "", true)), validating: true},
		"Probe": {request: marked(func(r *podRequest) {
			r.dryRun = true
			annotated(probeAnnotation)(r)
		})},
		// A mirror pod is never mutated.
		"Mirror": {request: marked(annotated(corev1.MirrorPodAnnotationKey)), mutating: true},
		"Debugged": {request: marked(func(r *podRequest) {
			r.operation, r.subresource = apiadmission.Update, "ephemeralcontainers"
		}), mutating: true},
		"DebuggedInADryRun": {request: marked(func(r *podRequest) {
			r.operation, r.subresource, r.dryRun = apiadmission.Update, "ephemeralcontainers", true
		}), mutating: true},
	} {
		spec := urlSpec()
		for _, spec.Ordinary = range []bool{true, false} {
			mutating, validating := spec.entries(nil)
			got := [2]bool{compile(t, mutating[0]).exempts(t, tc.request), compile(t, validating[0]).exempts(t, tc.request)}
			want := [2]bool{tc.mutating && spec.Ordinary || name == "Mirror", tc.validating && spec.Ordinary}
			testutil.Expect(t, got == want, "%s, ordinary %t: skipped by the mutating and the validating webhook: %t, want %t", name,
				spec.Ordinary,
				got, want)
		}
	}
	got := (Spec{}).notCompleted(isComplete)
	testutil.Expect(t, len(got) == 0, "other plugins see no Pod with %v", got)
	testutil.Check(t, "conditions without an ordinary plugin", 1, len(urlSpec().notCompleted(isComplete, notAMirror())))
}
