// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiadmission "k8s.io/apiserver/pkg/admission"

	"sa-controller-manager/internal/testutil"
)

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
