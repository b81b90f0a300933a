// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSecretMode boots a cluster as it was at Kubernetes 1.17: every account has a token
// Secret, and Pods mount it. Its own Pods have to do with such tokens too.
func TestSecretMode(t *testing.T) {
	c := create(t, ours(t, true, "--token-secrets=auto", "--pod-token=secret"))
	for _, pod := range c.awaitPods(t, metav1.NamespaceSystem, allReady) {
		if len(pod.Spec.Containers) > 0 && mounts(pod.Spec.Containers[0]) {
			c.mountsTokenSecret(t, pod)
		}
	}
	namespace := c.namespace(t, "secret-mode")
	// In the same instant as its namespace: neither the account nor its Secret is there.
	told := c.answers(t, namespace, c.asker(t, withInitContainer))
	for _, container := range []string{"init", "main"} {
		c.isAccount(t, told[container].Username, told[container].Groups, namespace)
		// kube-apiserver tells it of bound tokens alone.
		if pod := told[container].Extra["authentication.kubernetes.io/pod-name"]; len(pod) > 0 {
			t.Errorf("container %s has a token that is bound to the Pod %s, want one of a Secret", container, pod)
		}
	}
	if missed := c.missed(t); len(missed) > 0 {
		t.Errorf("Pods were admitted without us: %v", missed)
	}
}

// mountsTokenSecret holds a Pod to a token volume that is a token Secret of its account.
func (c *cluster) mountsTokenSecret(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	mount := pod.Spec.Containers[0].VolumeMounts[slices.IndexFunc(pod.Spec.Containers[0].VolumeMounts, func(mount corev1.VolumeMount) bool {
		return mount.MountPath == tokenPath
	})]
	volume := pod.Spec.Volumes[slices.IndexFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == mount.Name })]
	if volume.Secret == nil {
		t.Errorf("%s mounts %v, want a Secret", pod.Name, volume)
		return
	}
	secret, err := c.client.CoreV1().Secrets(pod.Namespace).Get(t.Context(), volume.Secret.SecretName, metav1.GetOptions{})
	if err != nil {
		t.Errorf("read what %s mounts: %v", pod.Name, err)
		return
	}
	if account := secret.Annotations[corev1.ServiceAccountNameKey]; secret.Type != corev1.SecretTypeServiceAccountToken ||
		account != pod.Spec.ServiceAccountName {
		t.Errorf("%s mounts a Secret of type %s and account %q, want a token Secret of %q", pod.Name, secret.Type, account,
			pod.Spec.ServiceAccountName)
	}
}
