// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lists has the account list a Secret.
func lists(secret string) func(*corev1.ServiceAccount) {
	return func(account *corev1.ServiceAccount) {
		account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: secret})
	}
}

func asksForLimits(account *corev1.ServiceAccount) {
	metav1.SetMetaDataAnnotation(&account.ObjectMeta, "kubernetes.io/enforce-mountable-secrets", "true")
}

// reads has the Pod read a Secret in a way that upstream limits.
func reads(secret string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[0].Env = []corev1.EnvVar{environment(secret)} }
}

// projects has the Pod read a Secret in a way that upstream does not limit.
func projects(secret string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}},
		}}}}
	}
}

// TestLimitSecretReferences limits the Secrets of every account, without the annotation.
func TestLimitSecretReferences(t *testing.T) {
	c := controlPlane(t)
	c.manage(t, "--limit-secret-references")
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "plain", lists("listed"))
	c.create(t, namespace, newPod(of("plain"), reads("listed")))
	c.refuse(t, namespace, newPod(of("plain"), reads("other")),
		`container main with envVar KEY referencing secret.secretName="other" is not allowed because service account plain does not reference that secret`)
	// Upstream does not look into projected volumes, so neither does this flag.
	c.create(t, namespace, newPod(of("plain"), projects("other")))
}

// TestStrictMountableSecrets limits the Secrets of accounts that ask for it in every
// field of a Pod.
func TestStrictMountableSecrets(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t, "--strict-mountable-secrets")
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "plain", lists("listed"))
	c.create(t, namespace, newPod(of("plain"), projects("other"))) // it does not ask
	c.createAccount(t, namespace, "limited", lists("listed"), asksForLimits)
	c.create(t, namespace, newPod(of("limited"), projects("listed")))
	const want = `volume volume with projected.sources[0].secret.name="other" is not allowed because service account limited does not reference that secret`
	c.refuse(t, namespace, newPod(of("limited"), projects("other")), want)
	got := m.answer(t, "/validate?timeout=10s", review(t, namespace, newPod(of("limited"), projects("other"))))
	if got.Allowed || got.AuditAnnotations["strict-mountable-secrets"] != want {
		t.Errorf("audit annotations %v, want that it is a refusal of strict mode", got.AuditAnnotations)
	}
}
