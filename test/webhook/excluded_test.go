// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestExcludedNamespaces: kube-apiserver does not call the webhook for what is in them,
// so that the program's own Pods can start when nobody answers it.
func TestExcludedNamespaces(t *testing.T) {
	c := controlPlane(t)
	excluded, other := c.namespace(t), c.namespace(t)
	m := c.manage(t, "--webhook-excluded-namespaces="+excluded)
	bare(t, c.create(t, excluded, newPod()))
	complete(t, c.create(t, other, newPod()), "default")

	// Killed, it cannot drain and stays registered.
	m.stopped = true
	if _, err := m.Kill(); err != nil {
		t.Error(err)
	}
	bare(t, c.create(t, excluded, newPod()))
	_, err := c.client.CoreV1().Pods(other).Create(t.Context(), newPod(), metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("elsewhere: got %v, want that the webhook is missed", err)
	}
}
