// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/testutil"
)

func TestStock(t *testing.T) {
	t.Parallel()
	mirror := func(component string, flags ...string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: component + "-cp", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}},
			Spec:       corev1.PodSpec{NodeName: "cp", Containers: []corev1.Container{{Command: append([]string{component}, flags...)}}},
		}
	}
	fake := mirror(APIServer)
	fake.Annotations = nil
	const three = " (serviceaccount-controller, root-ca-certificate-publisher-controller, legacy-serviceaccount-token-cleaner-controller"
	cases := map[string]struct {
		pods              []corev1.Pod
		servers, managers []string
		looked            int
	}{
		"Taken over": {pods: []corev1.Pod{
			mirror(APIServer, "--disable-admission-plugins=ServiceAccount"),
			mirror(ControllerManager, "--controllers=*,bootstrapsigner", "--service-account-private-key-file=a.key", "--controllers="+threeOff,
				"--service-account-private-key-file="),
		}, looked: 2},
		"Stock": {
			pods: []corev1.Pod{
				mirror(APIServer), mirror(ControllerManager, "--controllers=*,bootstrapsigner", "--service-account-private-key-file=a.key"),
			},
			looked:   2,
			servers:  []string{"kube-apiserver-cp"},
			managers: []string{"kube-controller-manager-cp" + three + ", serviceaccount-token-controller)"},
		},
		"Left to it": {
			pods: []corev1.Pod{
				mirror(ControllerManager, "--controllers=legacy-serviceaccount-token-cleaner-controller"),
				mirror(Manager, "--controllers=*,-legacy-serviceaccount-token-cleaner-controller"),
			},
			looked: 1,
		},
		"No mirror pod": {pods: []corev1.Pod{fake}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			servers, managers, looked := Stock(tc.pods)
			testutil.Check(t, "number of both", tc.looked, looked)
			testutil.Check(t, "kube-apiservers", tc.servers, servers)
			testutil.Check(t, "kube-controller-managers", tc.managers, managers)
		})
	}
}
