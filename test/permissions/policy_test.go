// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/integration/testcluster"
)

// TestPodsByDryRunAlone: who has our identity may create Pods in kube-system for the sake of the
// probe, and can have none there that runs.
func TestPodsByDryRunAlone(t *testing.T) {
	w := newWorld(t)
	root, err := filepath.Abs("../../manifests/permissions")
	testutil.Must(t, err)
	w.CreateAccount(t, metav1.NamespaceSystem, "default")
	w.kubectl(t, "apply", "-k", root)
	ours := w.identity(t, manifests.User).client.CoreV1().Pods(metav1.NamespaceSystem)
	stolen := registration.TrialPod()
	stolen.Spec.Volumes = []corev1.Volume{{Name: "node", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/kubernetes/pki"}}}}

	ctx := testcluster.Context(t)
	for {
		_, err := ours.Create(ctx, stolen, metav1.CreateOptions{})
		if err != nil && strings.Contains(err.Error(), "sa-controller-manager creates Pods with dryRun only") {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond): // nothing announces that a policy is in force, nor RBAC
		case <-ctx.Done():
			t.Fatalf("a Pod that runs: %v, want that the policy refuses it", err)
		}
	}
	if _, err := ours.Create(t.Context(), registration.ProbePod("id"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("the probe Pod: %v", err)
	}
	if _, err := w.API.CoreV1().Pods(metav1.NamespaceSystem).Create(t.Context(), stolen, metav1.CreateOptions{}); err != nil {
		t.Errorf("a Pod of somebody else: %v", err)
	}
}
