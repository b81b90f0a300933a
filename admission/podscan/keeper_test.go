// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
)

// ownerMeta is that of every owner in these tests.
func ownerMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "owner"}
}

// owned gives the Pod a controller.
func owned(apiVersion, kind string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "web", UID: "owner", Controller: new(true)}}
	}
}

func job(changes ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: ownerMeta(), Spec: batchv1.JobSpec{BackoffLimit: new(int32(6))}}
	for _, change := range changes {
		change(job)
	}
	return job
}

func condition(kind batchv1.JobConditionType, status corev1.ConditionStatus) func(*batchv1.Job) {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: status})
	}
}

func TestKeepers(t *testing.T) {
	t.Parallel()
	ofJob := owned("batch/v1", "Job")
	index := func(failures string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexFailureCountAnnotation, failures)
		}
	}
	perIndex := func(job *batchv1.Job) { job.Spec.BackoffLimitPerIndex = new(int32(1)) }
	limit := func(limit, failed int32) func(*batchv1.Job) {
		return func(job *batchv1.Job) { job.Spec.BackoffLimit, job.Status.Failed = &limit, failed }
	}
	cases := map[string]struct {
		reason  string
		pod     *corev1.Pod
		owner   runtime.Object
		evicted int
		want    string
	}{
		"Nobody":                {pod: newPod(), want: "no controller owns it"},
		"ReplicaSet":            {pod: newPod(owned("apps/v1", "ReplicaSet")), owner: &appsv1.ReplicaSet{ObjectMeta: ownerMeta()}},
		"ReplicationController": {pod: newPod(owned("v1", "ReplicationController")), owner: &corev1.ReplicationController{ObjectMeta: ownerMeta()}},
		"StatefulSet":           {pod: newPod(owned("apps/v1", "StatefulSet")), owner: &appsv1.StatefulSet{ObjectMeta: ownerMeta()}},
		"DaemonSet":             {pod: newPod(owned("apps/v1", "DaemonSet")), owner: &appsv1.DaemonSet{ObjectMeta: ownerMeta()}},
		"Job":                   {pod: newPod(ofJob), owner: job()},
		"Stranger":              {pod: newPod(owned("example.org/v1", "ReplicaSet")), want: "whether ReplicaSet/web creates Pods anew is not known"},
		"Node":                  {pod: newPod(owned("v1", "Node")), want: "whether Node/web creates Pods anew is not known", reason: "a static pod's"},
		"Gone":                  {pod: newPod(owned("apps/v1", "ReplicaSet")), want: "ReplicaSet/web is gone"},
		"Another": {
			reason: "of the same name", want: "ReplicaSet/web is gone",
			pod:   newPod(owned("apps/v1", "ReplicaSet")),
			owner: &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "another"}},
		},
		"Going": {
			pod: newPod(owned("apps/v1", "ReplicaSet")), want: "ReplicaSet/web is gone",
			owner: &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web", UID: "owner", DeletionTimestamp: &created, Finalizers: []string{"orphan"},
			}},
		},
		"JobComplete":    {pod: newPod(ofJob), owner: job(condition(batchv1.JobComplete, corev1.ConditionTrue)), want: "Job/web is finished"},
		"JobFailed":      {pod: newPod(ofJob), owner: job(condition(batchv1.JobFailed, corev1.ConditionTrue)), want: "Job/web is finished"},
		"JobFailing":     {pod: newPod(ofJob), owner: job(condition(batchv1.JobFailureTarget, corev1.ConditionTrue)), want: "Job/web is finished"},
		"JobNotComplete": {pod: newPod(ofJob), owner: job(condition(batchv1.JobComplete, corev1.ConditionFalse))},
		"JobSuspended": {
			pod: newPod(ofJob), want: "Job/web is suspended",
			owner: job(func(job *batchv1.Job) { job.Spec.Suspend = new(true) }),
		},
		"JobWithPolicy": {
			pod: newPod(ofJob), want: "Job/web has a podFailurePolicy, which may end it",
			owner: job(func(job *batchv1.Job) { job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{} }),
		},
		"JobMayFailOnce":       {pod: newPod(ofJob), owner: job(limit(1, 0))},
		"JobMayNotFail":        {pod: newPod(ofJob), owner: job(limit(0, 0)), want: "Job/web would fail: backoffLimit is 0"},
		"JobMayNotFailAgain":   {pod: newPod(ofJob), owner: job(limit(2, 2)), want: "Job/web would fail: backoffLimit is 2"},
		"JobWasMadeToFail":     {pod: newPod(ofJob), owner: job(limit(2, 0)), evicted: 2, want: "Job/web would fail: backoffLimit is 2", reason: "its status may lag"},
		"IndexMayFailOnce":     {pod: newPod(ofJob, index("0")), owner: job(perIndex)},
		"IndexMayNotFailAgain": {pod: newPod(ofJob, index("1")), owner: job(perIndex), want: "Job/web would give its index up: backoffLimitPerIndex is 1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			if tc.owner != nil {
				w = newWorld(tc.owner)
			}
			k := &keepers{w, map[types.UID]int{"owner": tc.evicted}}
			pod := describe(tc.pod, nil, false)
			got, err := k.refusal(t.Context(), &pod)
			if err != nil || got != tc.want {
				t.Errorf("%s\ngot %q, %v; want %q", tc.reason, got, err, tc.want)
			}
		})
	}
}

func TestKeepersFail(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.PrependReactor("get", "replicasets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("boom")
	})
	pod := describe(newPod(owned("apps/v1", "ReplicaSet")), nil, false)
	_, err := (&keepers{w, nil}).refusal(t.Context(), &pod)
	if want := "read ReplicaSet/web in namespace shop: boom"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}
