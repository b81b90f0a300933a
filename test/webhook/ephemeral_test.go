// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// debug adds an ephemeral container to the Pod, as kubectl debug does.
func (c *cluster) debug(t *testing.T, pod *corev1.Pod, env ...corev1.EnvVar) error {
	t.Helper()
	changed := pod.DeepCopy()
	changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: "image", Env: env,
		ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}}}
	_, err := c.client.CoreV1().Pods(pod.Namespace).UpdateEphemeralContainers(t.Context(), pod.Name, changed, metav1.UpdateOptions{})
	return err
}
