// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		if _, writes := a.counts(); writes != 0 || len(ca.has()) != 0 {
			t.Fatalf("a replica that does not lead has written %d times and knows %q", writes, ca.has())
		}
		run(t, a)
		pause(time.Minute)
		if got := ca.has(); len(got) != 1 || got[0] != string(a.accepted) || !ca.inherited {
			t.Errorf("registered is %q, inherited %t; want what the leader has written", got, ca.inherited)
		}
		end := testutil.Start(t, follower.Lead)
		pause(time.Second)
		if ca.inherited {
			t.Error("what a leader has seen once is still taken for that of another one")
		}
		end()
		pause(time.Second)
		if !ca.inherited {
			t.Error("a replica that no longer leads takes what is written for its own")
		}
	})
}

func TestIsInactive(t *testing.T) {
	t.Parallel()
	const mutating, validating = "the MutatingWebhookConfiguration " + Name, "the ValidatingWebhookConfiguration " + Name
	for name, tc := range map[string]struct {
		mutating, validating *object
		want                 string
	}{
		"None":        {},
		"Active":      {mutating: stored("", mutateName), validating: stored("", validateName), want: mutating},
		"BeingProved": {mutating: stored("", probeName), validating: stored(""), want: mutating},
		"Off":         {mutating: stored(AnnotationOff), validating: stored(AnnotationOff)},
		"OffAndBound": {mutating: stored(AnnotationOff, mutateName), want: mutating},
		"OneIsOff":    {mutating: stored(AnnotationOff), validating: stored("", validateName), want: validating},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if tc.mutating != nil {
				objects = append(objects, kind(0).typed(tc.mutating))
			}
			if tc.validating != nil {
				objects = append(objects, kind(1).typed(tc.validating))
			}
			if tc.want != "" {
				tc.want += " still binds a webhook"
			}
			testutil.CheckError(t, name, tc.want, IsInactive(t.Context(), fake.NewClientset(objects...)))
		})
	}
}

// What cannot be read is not inactive.
func TestIsInactiveWithoutAPI(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("get", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("boom")
	})
	testutil.CheckError(t, "", "read the ValidatingWebhookConfiguration 00-sa-controller-manager: boom", IsInactive(t.Context(), client))
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
			if got != want {
				t.Errorf("%s, ordinary %t: skipped by the mutating and the validating webhook: %t, want %t", name, spec.Ordinary, got, want)
			}
		}
	}
	if got := (Spec{}).notCompleted(isComplete); len(got) > 0 {
		t.Errorf("other plugins see no Pod with %v", got)
	}
	testutil.Check(t, "conditions without an ordinary plugin", 1, len(urlSpec().notCompleted(isComplete, notAMirror())))
}
