// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels and dates of the legacy token cleaner.
const (
	LastUsedLabel = "kubernetes.io/legacy-token-last-used"

	// LongAgo makes a Secret look old. The clock cannot be changed, so labels and the tracking
	// ConfigMap have old dates.
	LongAgo = "2020-01-01"

	TrackingConfigMap = "kube-apiserver-legacy-service-account-token-tracking"
)

// Today returns the date that labels get. Shortly before midnight it waits for the next day to begin.
func Today(t *testing.T) string {
	t.Helper()
	now := time.Now().UTC()
	if midnight := now.Truncate(24 * time.Hour).Add(24 * time.Hour); midnight.Sub(now) < 3*time.Minute {
		select {
		case <-time.After(midnight.Sub(now)):
		case <-t.Context().Done():
		}
	}
	return time.Now().UTC().Format(time.DateOnly)
}

// TrackSince sets the date since when kube-apiserver tracks tokens. kube-apiserver keeps any date.
func (c *ControlPlane) TrackSince(t *testing.T, since string) {
	t.Helper()
	configMaps := c.API.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	tracking := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: TrackingConfigMap},
		Data:       map[string]string{"since": since},
	}
	Poll(t, "write the tracking ConfigMap", func() error {
		_, err := configMaps.Update(t.Context(), tracking, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = configMaps.Create(t.Context(), tracking, metav1.CreateOptions{})
		}
		return err
	})
}

// AwaitTracking returns once kube-apiserver has written the ConfigMap.
func (c *ControlPlane) AwaitTracking(t *testing.T) {
	t.Helper()
	Poll(t, "await the tracking ConfigMap", func() error {
		tracking, err := c.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), TrackingConfigMap, metav1.GetOptions{})
		if err == nil && tracking.Data["since"] == "" {
			err = errors.New("it has no date")
		}
		return err
	})
}

// AwaitRound waits until the cleaner has finished a round.
func (m *Manager) AwaitRound(t *testing.T) {
	t.Helper()
	m.AwaitMetric(t, "sacm_legacy_token_cleaner_last_run_timestamp_seconds", nil, 1)
}

// PodUsing returns a Pod of account app. No kubelet runs it.
func PodUsing(name string, changes ...func(*corev1.PodSpec)) *corev1.Pod {
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName: "app", AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "main", Image: "image"}},
		},
	}
	for _, change := range changes {
		change(&pod.Spec)
	}
	return pod
}

// InVolume mounts a Secret as a volume.
func InVolume(secret string) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{
			Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}},
		})
	}
}

// CreatePod creates a Pod.
func (c *ControlPlane) CreatePod(t *testing.T, namespace string, pod *corev1.Pod) {
	t.Helper()
	if _, err := c.API.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create pod %s/%s: %v", namespace, pod.Name, err)
	}
}

// Marks returns the invalid-since dates of the Secrets of a namespace, by name.
func (c *ControlPlane) Marks(t *testing.T, namespace string) map[string]string {
	t.Helper()
	list, err := c.API.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("list secrets: %v", err)
	}
	marks := map[string]string{}
	for _, secret := range list.Items {
		marks[secret.Name] = secret.Labels[InvalidSinceLabel]
	}
	return marks
}

// RefusedAsInvalid returns once kube-apiserver refuses the token because of its mark.
func (c *ControlPlane) RefusedAsInvalid(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	Poll(t, "await that kube-apiserver refuses the token of "+secret.Name, func() error {
		status, err := c.Review(t.Context(), string(secret.Data[corev1.ServiceAccountTokenKey]))
		if err == nil && (status.Authenticated || !strings.Contains(status.Error, "has been marked invalid")) {
			err = fmt.Errorf("authenticated: %v, error: %q", status.Authenticated, status.Error)
		}
		return err
	})
}
