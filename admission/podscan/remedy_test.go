// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/internal/testutil"
)

// owned gives the Pod a controller.
func owned(apiVersion, kind, name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(kind + name), Controller: new(true)},
		}
	}
}

// hashed is what the Deployment controller labels Pods with.
func hashed(hash string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.DefaultDeploymentUniqueLabelKey, hash)
	}
}

func TestRemedy(t *testing.T) {
	t.Parallel()
	deletes := Remedy{Command: "kubectl delete pod pod -n shop"}
	cases := map[string]struct {
		reason string
		pod    *corev1.Pod
		want   Remedy
	}{
		"Nobody": {
			pod:  newPod(),
			want: Remedy{Note: "no controller owns it: delete it and create it yourself"},
		},
		"OwnedByNoController": {
			reason: "such an owner only has the Pod deleted with it",
			pod:    newPod(owned("apps/v1", "ReplicaSet", "web"), func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil }),
			want:   Remedy{Note: "no controller owns it: delete it and create it yourself"},
		},
		"Deployment": {
			pod:  newPod(owned("apps/v1", "ReplicaSet", "web-1-5d9c7b"), hashed("5d9c7b")),
			want: Remedy{Command: "kubectl rollout restart deployment/web-1 -n shop"},
		},
		"ReplicaSet": {pod: newPod(owned("apps/v1", "ReplicaSet", "web")), want: deletes},
		"ReplicaSetOfAnother": {
			reason: "a rollout of no Deployment labels its Pods like one",
			pod:    newPod(owned("apps/v1", "ReplicaSet", "web-5d9c7b"), hashed("77aa")), want: deletes,
		},
		"ReplicationController": {pod: newPod(owned("v1", "ReplicationController", "web")), want: deletes},
		"StatefulSet": {
			pod:  newPod(owned("apps/v1", "StatefulSet", "db")),
			want: Remedy{Command: "kubectl rollout restart statefulset/db -n shop"},
		},
		"DaemonSet": {
			pod:  newPod(owned("apps/v1", "DaemonSet", "agent")),
			want: Remedy{Command: "kubectl rollout restart daemonset/agent -n shop"},
		},
		"Job": {
			reason: "too many failures end the Job",
			pod:    newPod(owned("batch/v1", "Job", "migration")),
			want:   Remedy{Command: deletes.Command, Note: "Job/migration counts a deleted Pod as failed"},
		},
		"Stranger": {
			pod:  newPod(owned("example.org/v1", "ReplicaSet", "web")),
			want: Remedy{Note: "it is not known whether ReplicaSet/web creates it again"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Remedies([]Pod{describe(tc.pod, nil, false)}, "")
			testutil.Check(t, tc.reason+"\nremedy", []Remedy{tc.want}, got)
		})
	}
}

// TestRemediesOfAnOwner has one command for all its Pods, and only for them.
func TestRemediesOfAnOwner(t *testing.T) {
	t.Parallel()
	web, other := owned("apps/v1", "ReplicaSet", "web"), owned("apps/v1", "ReplicaSet", "other")
	got := Remedies([]Pod{
		describe(newPod(named("a"), web), nil, false),
		describe(newPod(named("c"), other), nil, false),
		describe(newPod(named("b"), web), nil, false),
	}, "")
	both, one := Remedy{Command: "kubectl delete pod a b -n shop"}, Remedy{Command: "kubectl delete pod c -n shop"}
	testutil.Check(t, "remedies", []Remedy{both, one, both}, got)
}

func TestRemediesNameTheCluster(t *testing.T) {
	t.Parallel()
	pods := []Pod{describe(newPod(owned("apps/v1", "StatefulSet", "db")), nil, false)}
	for kubeconfig, want := range map[string]string{
		"":                           "",
		"/etc/kubernetes/admin.conf": " --kubeconfig=/etc/kubernetes/admin.conf",
		"my file":                    " --kubeconfig='my file'",
		"it's":                       ` --kubeconfig='it'\''s'`,
		"$(id)\n":                    " --kubeconfig='$(id)\n'",
	} {
		got := Remedies(pods, ClusterFlags(kubeconfig, "b@c"))[0].Command
		testutil.Check(t, kubeconfig, "kubectl rollout restart statefulset/db -n shop"+want+" --context=b@c", got)
	}
}
