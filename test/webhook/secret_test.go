// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTokenSecrets gives Pods their account's token Secret, as up to Kubernetes 1.20.
// No Secret exists yet when the Pod is created: the webhook waits for the token
// controller.
func TestTokenSecrets(t *testing.T) {
	c := controlPlane(t)
	c.manage(t, "--pod-token=secret", "--token-secrets=auto")
	cases := map[string]struct {
		reason  string
		account string
		make    bool
	}{
		"NewNamespace": {reason: "neither the account nor its Secret exists", account: "default"},
		"NewAccount":   {reason: "the account was created in the same instant", account: "builder", make: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := c.namespace(t)
			if tc.make {
				c.createAccount(t, namespace, tc.account)
			}
			pod := c.create(t, namespace, newPod(of(tc.account), withInitContainer))
			account, err := c.client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), tc.account, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(account.Secrets) != 1 {
				t.Fatalf("%s: the account lists %v, want one Secret", tc.reason, account.Secrets)
			}
			token := account.Secrets[0].Name
			want := []corev1.Volume{{Name: token, VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: token, DefaultMode: new(int32(0o644))},
			}}}
			if diff := cmp.Diff(want, pod.Spec.Volumes); diff != "" {
				t.Errorf("%s\nthe Pod's volumes (-want +got):\n%s", tc.reason, diff)
			}
			mounted(t, pod, token)
		})
	}
}

// TestNoTokenSecret asks for what nobody makes: in mode manual an account has no token
// Secret until a person makes one. The refusal says to try again. The account of the probe
// has none either, and the webhook binds all the same.
func TestNoTokenSecret(t *testing.T) {
	c := controlPlane(t)
	err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{
		FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken),
	})
	if err != nil {
		t.Fatal(err)
	}
	m := c.start(t, "--webhook-registration=url", "--pod-token=secret", "--token-secrets=manual", "--webhook-timeout=3s")
	m.awaitReady(t)
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "builder")
	c.awaitRefusal(t, namespace, newPod(of("builder")), `No API token found for service account "builder", retry after the token is automatically created and added to the service account`)
}
