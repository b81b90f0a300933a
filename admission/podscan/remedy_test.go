// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"strings"
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

func TestRemedy(t *testing.T) {
	t.Parallel()
	const nobody = "no controller owns it: delete it and create it yourself"
	cases := map[string]struct {
		reason          string
		owner, hash     string // its apiVersion, kind and name, and what the Deployment controller labels Pods with
		noController    bool
		kubectl, advice string
	}{
		"Nobody": {advice: nobody},
		"OwnedByNoController": {
			reason: "such an owner only has the Pod deleted with it", owner: "apps/v1 ReplicaSet web", noController: true, advice: nobody,
		},
		"Deployment": {owner: "apps/v1 ReplicaSet web-1-5d9c7b", hash: "5d9c7b", kubectl: "rollout restart deployment/web-1"},
		"ReplicaSet": {owner: "apps/v1 ReplicaSet web", kubectl: "delete pod pod"},
		"ReplicaSetOfAnother": {
			reason: "a rollout of no Deployment labels its Pods like one",
			owner:  "apps/v1 ReplicaSet web-5d9c7b", hash: "77aa", kubectl: "delete pod pod",
		},
		"ReplicationController": {owner: "v1 ReplicationController web", kubectl: "delete pod pod"},
		"StatefulSet":           {owner: "apps/v1 StatefulSet db", kubectl: "rollout restart statefulset/db"},
		"DaemonSet":             {owner: "apps/v1 DaemonSet agent", kubectl: "rollout restart daemonset/agent"},
		"Job": {
			reason: "too many failures end the Job", owner: "batch/v1 Job migration",
			kubectl: "delete pod pod", advice: "Job/migration counts a deleted Pod as failed",
		},
		"Stranger": {owner: "example.org/v1 ReplicaSet web", advice: "it is not known whether ReplicaSet/web creates it again"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod, want := newPod(), Remedy{Note: tc.advice}
			if owner := strings.Fields(tc.owner); len(owner) > 0 {
				owned(owner[0], owner[1], owner[2])(pod)
				pod.OwnerReferences[0].Controller = new(!tc.noController)
			}
			if tc.hash != "" {
				metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.DefaultDeploymentUniqueLabelKey, tc.hash)
			}
			if tc.kubectl != "" {
				want.Command = "kubectl " + tc.kubectl + " -n shop"
			}
			testutil.Check(t, tc.reason+"\nremedy", []Remedy{want}, Remedies([]Pod{describe(pod, nil, false)}, ""))
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
