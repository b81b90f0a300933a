// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

const (
	keepAnnotation = "sa-controller-manager/keep"

	// shortPeriod makes every token unused that was last used before today.
	shortPeriod = "--legacy-service-account-token-clean-up-period=1ms"
)

// cleaner starts a manager with the cleaner and returns after its first round.
func cleaner(t *testing.T, c *testcluster.ControlPlane, flags ...string) *testcluster.Manager {
	t.Helper()
	m := c.Manage(t, append([]string{"--token-secrets=manual", shortPeriod}, flags...)...)
	m.AwaitRound(t)
	return m
}

// decided returns how many Secrets got a decision in the last round.
func decided(t *testing.T, m *testcluster.Manager, decision string) float64 {
	t.Helper()
	return m.Metric(t, "sacm_legacy_token_cleaner_secrets", devcluster.Labels{"decision": decision})
}

// filledSecrets makes token Secrets of account app and has them filled. Those that
// are not called manual are referenced.
func filledSecrets(t *testing.T, c *testcluster.ControlPlane, namespace string, secrets ...*corev1.Secret) {
	t.Helper()
	var references []string
	for _, secret := range secrets {
		if secret.Name != "manual" {
			references = append(references, secret.Name)
		}
	}
	c.CreateAccount(t, namespace, "app", testcluster.Referencing(references...))
	for _, secret := range secrets {
		c.CreateSecret(t, secret)
	}
	// With its own period no Secret of today is unused.
	m := c.Manage(t, "--token-secrets=manual", "--controllers=serviceaccount-token")
	for _, secret := range secrets {
		c.AwaitFilled(t, namespace, secret.Name)
	}
	m.Shutdown(t)
}

func inVariable(secret string) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) {
		pod.InitContainers = append(pod.InitContainers, corev1.Container{
			Name: "init", Image: "image",
			Env: []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "token",
			}}}},
		})
	}
}
