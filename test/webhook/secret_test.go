// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
)

// TestTokenSecrets gives a Pod its account's token Secret, as up to Kubernetes 1.20. Neither the
// account nor its Secret exists when the Pod is created: the webhook waits for the token
// controller.
func TestTokenSecrets(t *testing.T) {
	c := controlPlane(t)
	c.manage(t, "--pod-token=secret", "--token-secrets=auto")
	namespace := c.namespace(t)
	pod := c.create(t, namespace, newPod(withInitContainer))
	account, err := c.client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
	testutil.Must(t, err)
	if len(account.Secrets) != 1 {
		t.Fatalf("the account lists %v, want one Secret", account.Secrets)
	}
	token := account.Secrets[0].Name
	want := []corev1.Volume{{Name: token, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: token, DefaultMode: new(int32(0o644))},
	}}}
	testutil.Check(t, "the Pod's volumes", want, pod.Spec.Volumes)
	mounted(t, pod, token)
}
