// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/devcluster"
)

const (
	lastUsedLabel  = "kubernetes.io/legacy-token-last-used"
	keepAnnotation = "sa-controller-manager/keep"

	// longAgo makes a Secret look old. Time itself cannot be turned: days have
	// passed because labels and the tracking ConfigMap say so.
	longAgo = "2020-01-01"

	// shortPeriod has everything from before today, and from before this moment,
	// count as unused.
	shortPeriod = "--legacy-service-account-token-clean-up-period=1ms"

	trackingConfigMap = "kube-apiserver-legacy-service-account-token-tracking"
)

// today is the day that labels get. A test that runs over midnight would mistake it,
// so that one waits for the day to begin.
func today(t *testing.T) string {
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

// trackSince has kube-apiserver have tracked tokens since that day. It leaves a date
// alone, whichever it is.
func (c *controlPlane) trackSince(t *testing.T, since string) {
	t.Helper()
	configMaps := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	tracking := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: trackingConfigMap},
		Data:       map[string]string{"since": since},
	}
	poll(t, "write the tracking ConfigMap", func() error {
		_, err := configMaps.Update(t.Context(), tracking, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			_, err = configMaps.Create(t.Context(), tracking, metav1.CreateOptions{})
		}
		return err
	})
}

// untrack deletes the ConfigMap. kube-apiserver makes it again only half an hour after
// it has made the one before.
func (c *controlPlane) untrack(t *testing.T) {
	t.Helper()
	if err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(t.Context(), trackingConfigMap, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete the tracking ConfigMap: %v", err)
	}
}

// awaitTracking returns once kube-apiserver has written the ConfigMap.
func (c *controlPlane) awaitTracking(t *testing.T) {
	t.Helper()
	poll(t, "await the tracking ConfigMap", func() error {
		tracking, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), trackingConfigMap, metav1.GetOptions{})
		if err == nil && tracking.Data["since"] == "" {
			err = errors.New("it has no date")
		}
		return err
	})
}

// cleaner starts a manager that cleans, and returns once its round is over.
// The tests share a control plane, and together they mark more in a day than a tenth.
func (c *controlPlane) cleaner(t *testing.T, flags ...string) *manager {
	t.Helper()
	m := c.manage(t, append([]string{"--token-secrets=manual", shortPeriod, "--legacy-token-clean-up-unlimited"}, flags...)...)
	m.awaitRound(t)
	return m
}

func (m *manager) awaitRound(t *testing.T) {
	t.Helper()
	m.awaitMetric(t, "sacm_legacy_token_cleaner_last_run_timestamp_seconds", nil, 1)
}

// decided is how many Secrets the last round has decided on in that way.
func (m *manager) decided(t *testing.T, decision string) float64 {
	t.Helper()
	return m.metric(t, "sacm_legacy_token_cleaner_secrets", devcluster.Labels{"decision": decision})
}

// filledSecrets makes token Secrets of account app and has them filled. Those that
// are not called manual are referenced.
func (c *controlPlane) filledSecrets(t *testing.T, namespace string, secrets ...*corev1.Secret) {
	t.Helper()
	var references []string
	for _, secret := range secrets {
		if secret.Name != "manual" {
			references = append(references, secret.Name)
		}
	}
	c.createAccount(t, namespace, "app", referencing(references...))
	for _, secret := range secrets {
		c.createSecret(t, secret)
	}
	// With its own period no Secret of today is unused.
	m := c.manage(t, "--token-secrets=manual", "--controllers=serviceaccount-token")
	for _, secret := range secrets {
		c.awaitFilled(t, namespace, secret.Name)
	}
	m.stop(t)
}

func withAnnotation(name, value string) change {
	return func(s *corev1.Secret) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, name, value) }
}

// using is a Pod of account app. Nobody runs it.
func using(name string, changes ...func(*corev1.PodSpec)) *corev1.Pod {
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

func inVolume(secret string) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{
			Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}},
		})
	}
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

func (c *controlPlane) createPod(t *testing.T, namespace string, pod *corev1.Pod) {
	t.Helper()
	if _, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create pod %s/%s: %v", namespace, pod.Name, err)
	}
}

// marks are the days since which the Secrets of a namespace are invalid, by name.
func (c *controlPlane) marks(t *testing.T, namespace string) map[string]string {
	t.Helper()
	list, err := c.client.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("list secrets: %v", err)
	}
	marks := map[string]string{}
	for _, secret := range list.Items {
		marks[secret.Name] = secret.Labels[invalidSinceLabel]
	}
	return marks
}

// refusedAsInvalid returns once kube-apiserver refuses the token because of its mark.
func (c *controlPlane) refusedAsInvalid(t *testing.T, secret *corev1.Secret) {
	t.Helper()
	poll(t, "await that kube-apiserver refuses the token of "+secret.Name, func() error {
		status, err := c.review(t.Context(), string(secret.Data[corev1.ServiceAccountTokenKey]))
		if err == nil && (status.Authenticated || !strings.Contains(status.Error, "has been marked invalid")) {
			err = fmt.Errorf("authenticated: %v, error: %q", status.Authenticated, status.Error)
		}
		return err
	})
}

func (c *controlPlane) trackedSince(t *testing.T, want string) error {
	t.Helper()
	tracking, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), trackingConfigMap, metav1.GetOptions{})
	if err == nil && tracking.Data["since"] != want {
		err = fmt.Errorf("it says %q", tracking.Data["since"])
	}
	return err
}
