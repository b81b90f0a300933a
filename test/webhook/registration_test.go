// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// TestNothingIsWritten is registration "none". There is a serving CA all the same: a user who
// registers the webhook by hand and gives no files finds its caBundle there.
func TestNothingIsWritten(t *testing.T) {
	c := controlPlane(t)
	m := c.start(t, "--webhook-registration=none")
	m.awaitReady(t)
	namespace := c.namespace(t)
	bare(t, c.create(t, namespace, newPod()))
	c.awaitAccount(t, namespace, "default")
	c.unregistered(t)
	ca, err := c.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), caSecretName, metav1.GetOptions{})
	testutil.Must(t, err)
	if err := m.verifies(t.Context(), t, ca.Data["ca.crt"]); err != nil {
		t.Errorf("kube-apiserver would not accept the serving certificate: %v", err)
	}
}

// unregistered wants no configuration in the API.
func (c *cluster) unregistered(t *testing.T) {
	t.Helper()
	_, mutating := c.mutating().Get(t.Context(), configurationName, metav1.GetOptions{})
	_, validating := c.validating().Get(t.Context(), configurationName, metav1.GetOptions{})
	for _, err := range []error{mutating, validating} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("get a configuration: got %v, want that there is none", err)
		}
	}
}

// awaitAccount returns once the account exists.
func (c *cluster) awaitAccount(t *testing.T, namespace, name string) {
	t.Helper()
	if _, err := await.ServiceAccounts(limited(t), c.client, namespace, await.Named[*corev1.ServiceAccount](name)); err != nil {
		t.Fatalf("in namespace %s: %v", namespace, err)
	}
}

// awaitRegistration returns once the manager, which is ready, says that of its
// registration.
func (m *manager) awaitRegistration(t *testing.T, state string) {
	t.Helper()
	line := regexp.MustCompile(`(?m)^\[\+\]webhook-registration ok: ` + state + `:`)
	poll(t, "await that the registration is "+state, func(ctx context.Context) error {
		report, err := m.Get(ctx, "/readyz?verbose")
		if err == nil && !line.MatchString(report) {
			err = fmt.Errorf("the report is:\n%s", report)
		}
		return err
	})
}
