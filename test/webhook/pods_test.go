// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
)

// tokenPath is where every container finds its token.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// newPod is a Pod that says no more than it must. The changes make it a case.
func newPod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// of has the Pod name an account.
func of(account string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.ServiceAccountName = account }
}

func withInitContainer(pod *corev1.Pod) {
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "init", Image: "image"})
}

// mirror makes it the copy of a static Pod. Such a Pod must say where it runs.
func mirror(pod *corev1.Pod) {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.MirrorPodAnnotationKey, "hash")
	pod.Spec.NodeName = "node"
}

func environment(secret string) corev1.EnvVar {
	return corev1.EnvVar{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "key",
	}}}
}

func secretVolume(secret string) corev1.Volume {
	return corev1.Volume{Name: "volume", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}}
}

// create creates the Pod, which must be admitted, and returns what became of it.
func (c *cluster) create(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	made, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	testutil.Must(t, err)
	return made
}

// refuse creates the Pod, which must be refused with 403 and that text.
func (c *cluster) refuse(t *testing.T, namespace string, pod *corev1.Pod, text string) {
	t.Helper()
	_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	refused(t, err, text)
}

func refused(t *testing.T, err error, text string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want a refusal that says %q", err, text)
	}
}

func (c *cluster) createAccount(t *testing.T, namespace, name string, changes ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, change := range changes {
		change(account)
	}
	made, err := c.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
	testutil.Must(t, err)
	return made
}

// try creates a Pod with dryRun.
func (c *cluster) try(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return c.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// bound reports whether kube-apiserver asks both webhooks about Pods: only mutation names
// an account, and a mirror Pod is checked by validation alone.
func (c *cluster) bound(ctx context.Context) (mutation, validation bool, _ error) {
	pod, err := c.try(ctx, metav1.NamespaceDefault, newPod())
	if err != nil {
		return false, false, err
	}
	_, err = c.try(ctx, metav1.NamespaceDefault, newPod(mirror, of("default")))
	if err != nil && !apierrors.IsForbidden(err) {
		return false, false, err
	}
	return pod.Spec.ServiceAccountName != "", err != nil, nil
}

// awaitBound returns once kube-apiserver asks both webhooks: it learns of their
// configurations through a watch of its own, which nothing announces.
func (c *cluster) awaitBound(t *testing.T) {
	t.Helper()
	poll(t, "await that kube-apiserver calls the webhooks", func(ctx context.Context) error {
		mutation, validation, err := c.bound(ctx)
		if err == nil && !(mutation && validation) {
			err = fmt.Errorf("mutation %t, validation %t", mutation, validation)
		}
		return err
	})
}
