// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestStrictMountableSecrets limits the Secrets of every account, with no annotation on it, in
// every field of a Pod. Each of the two flags alone would admit the last Pod.
func TestStrictMountableSecrets(t *testing.T) {
	c := controlPlane(t)
	c.manage(t, "--limit-secret-references", "--strict-mountable-secrets")
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "plain", func(account *corev1.ServiceAccount) {
		account.Secrets = []corev1.ObjectReference{{Name: "listed"}}
	})
	projects := func(secret string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}},
			}}}}
		}
	}
	c.create(t, namespace, newPod(of("plain"), projects("listed")))
	c.refuse(t, namespace, newPod(of("plain"), projects("other")),
		`volume volume with projected.sources[0].secret.name="other" is not allowed because service account plain does not reference that secret`)
}
