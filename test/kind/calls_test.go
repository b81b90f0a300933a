// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/controllers/rootca"
)

// callTheAPI has Pods call the API with what our webhook has mounted.
func (c *cluster) callTheAPI(t *testing.T, worker string) {
	cases := map[string]struct {
		reason  string
		changes []func(*corev1.Pod)
		asked   []string // containers
	}{
		"ControlPlane": {changes: []func(*corev1.Pod){on(c.controlPlane())}, asked: []string{"main"}},
		"Worker":       {changes: []func(*corev1.Pod){on(worker)}, asked: []string{"main"}},
		"InitContainer": {
			reason: "it gets a mount too", changes: []func(*corev1.Pod){on(worker), withInitContainer}, asked: []string{"init", "main"},
		},
	}
	if c.minor(t) >= 37 {
		one := cases["Worker"]
		one.reason, one.changes = "the kubelet projects our bundle, which kube-apiserver fits", append(one.changes, trustsBundle)
		cases["TrustBundle"] = one
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := c.namespace(t, "calls-"+strings.ToLower(name))
			// In the same instant as its namespace: nobody awaits the account.
			answers := c.answers(t, namespace, c.asker(t, tc.changes...))
			for _, container := range tc.asked {
				c.isAccount(t, answers[container].Username, answers[container].Groups, namespace)
			}
		})
	}
}

// trustsBundle has the Pod verify kube-apiserver by the ClusterTrustBundle.
func trustsBundle(pod *corev1.Pod) {
	const name, directory, file = "trust", "/trust", "ca.crt"
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{
			SignerName: new(rootca.ServingSigner), LabelSelector: &metav1.LabelSelector{}, Path: file,
		}}}},
	}})
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: directory, ReadOnly: true})
	main.Env = append(main.Env, corev1.EnvVar{Name: "CA_FILE", Value: directory + "/" + file})
}
