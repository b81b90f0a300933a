// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/integration/testcluster"
)

// TestDefaultAccountTokens: the Pod is as the webhook leaves it.
func TestDefaultAccountTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root, err := filepath.Abs("../../manifests/policies/default-account-tokens")
	testutil.Must(t, err)
	w.kubectl(t, "apply", "-k", root)
	create := func(ctx context.Context, namespace, account, volume string) error {
		pod := registration.TrialPod()
		pod.Spec.ServiceAccountName = account
		source := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}
		if volume != "token" {
			source = corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}}
		}
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}}},
		}
		_, err := w.API.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const shop = metav1.NamespaceDefault
	awaitRefused(t, "no Pod may use the token of the account default",
		func(ctx context.Context) error { return create(ctx, shop, "default", "token") })
	for name, err := range map[string]error{
		"another volume":    create(t.Context(), shop, "default", "labels"),
		"another account":   create(t.Context(), shop, "builder", "token"),
		"another namespace": create(t.Context(), metav1.NamespaceSystem, "default", "token"),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// awaitRefused polls, because nothing announces that a policy is in force, nor RBAC.
func awaitRefused(t *testing.T, text string, create func(context.Context) error) {
	t.Helper()
	testcluster.Poll(t, "await the refusal of a Pod", func() error {
		if err := create(t.Context()); err == nil || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("got %v, want %q", err, text)
		}
		return nil
	})
}
