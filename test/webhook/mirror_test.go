// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"
)

// TestMirrorPodsWhileNobodyAnswers has a kubelet show its static pods after our process has
// ended: the control plane comes back without us, and nothing else does.
func TestMirrorPodsWhileNobodyAnswers(t *testing.T) {
	c := controlPlane(t)
	c.manage(t).stop(t)
	kubelet, named, person := c.as(t, "system:node:node", "system:nodes"), c.as(t, "system:node:node"), c.as(t, "jane", "system:nodes")
	withPath := func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "pki", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	}
	for name, tc := range map[string]struct {
		client kubernetes.Interface
		pod    *corev1.Pod
		exempt bool
	}{
		"Mirror":      {kubelet, newPod(mirror, withPath, withInitContainer), true},
		"NoMirror":    {kubelet, newPod(), false},
		"WithAccount": {kubelet, newPod(mirror, of("default")), false},
		"WithSecret":  {kubelet, newPod(mirror, func(pod *corev1.Pod) { pod.Spec.Volumes = []corev1.Volume{secretVolume("any")} }), false},
		"WithVariable": {
			kubelet, newPod(mirror, func(pod *corev1.Pod) { pod.Spec.Containers[0].Env = []corev1.EnvVar{environment("any")} }), false,
		},
		"NotOfTheGroup":   {named, newPod(mirror), false},
		"NotNamedAsANode": {person, newPod(mirror), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tc.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), tc.pod,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if unanswered := err != nil && strings.Contains(err.Error(), "failed calling webhook"); unanswered == tc.exempt || tc.exempt &&
				err != nil {
				t.Errorf("error %v, exempt should be %t", err, tc.exempt)
			}
		})
	}
}

// as returns a client of a user. NodeRestriction is off here.
func (c *cluster) as(t *testing.T, name string, groups ...string) kubernetes.Interface {
	t.Helper()
	config := c.Config()
	// The last group is what permits to create Pods.
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: append(groups, "system:masters")}
	client, err := kubernetes.NewForConfig(config)
	testutil.Must(t, err)
	return client
}
