// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestLimitSecretReferences limits the Secrets of every account, with no annotation on it, in the
// fields that the in-tree plugin limits.
func TestLimitSecretReferences(t *testing.T) {
	c := controlPlane(t)
	c.manage(t, "--limit-secret-references")
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "plain", func(account *corev1.ServiceAccount) {
		account.Secrets = []corev1.ObjectReference{{Name: "listed"}}
	})
	mounts := func(secret string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{
				{Name: "volume", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}},
			}
		}
	}
	projects := func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "other"}}}},
		}}}}
	}
	c.create(t, namespace, newPod(of("plain"), mounts("listed")))
	c.create(t, namespace, newPod(of("plain"), projects))
	c.refuse(t, namespace, newPod(of("plain"), mounts("other")),
		`volume with secret.secretName="other" is not allowed because service account plain does not reference that secret`)
}
