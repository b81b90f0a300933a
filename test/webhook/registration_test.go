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

	"sa-controller-manager/test/await"
)

// TestNothingBindsUnproved has a manager announce an address at which kube-apiserver does not reach
// it, as a process on a laptop with an administrator's kubeconfig does.
func TestNothingBindsUnproved(t *testing.T) {
	c := controlPlane(t)
	m := c.start(t, "--webhook-registration=url", "--webhook-url-host=nobody.invalid")
	m.faulty = true
	want := regexp.MustCompile(fmt.Sprintf(`webhook-registration failed: .*has not proved that it reaches https://nobody\.invalid:%d/mutate`,
		m.port))
	poll(t, "await a manager that says why it is not ready", func(ctx context.Context) error {
		if _, err := m.Get(ctx, "/readyz"); err == nil || !want.MatchString(err.Error()) {
			return fmt.Errorf("readyz says %v, want %q", err, want)
		}
		return nil
	})
	namespace := c.namespace(t)
	bare(t, c.create(t, namespace, newPod()))
	c.create(t, namespace, newPod(of("nobody")))
	c.awaitAccount(t, namespace, "default") // the controllers work on
	c.onlyProbes(t)
}

// TestNothingIsWritten is registration "none". There is a serving CA all the same: a user who
// registers the webhook by hand and gives no files finds its caBundle there.
func TestNothingIsWritten(t *testing.T) {
	c := controlPlane(t)
	m := c.start(t, "--webhook-registration=none")
	m.awaitReady(t)
	namespace := c.namespace(t)
	bare(t, c.create(t, namespace, newPod()))
	c.awaitAccount(t, namespace, "default")
	if _, err := c.mutating().Get(t.Context(), configurationName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the MutatingWebhookConfiguration: got %v, want that there is none", err)
	}
	if _, err := c.validating().Get(t.Context(), configurationName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get the ValidatingWebhookConfiguration: got %v, want that there is none", err)
	}
	ca := c.awaitCASecret(t, func(*corev1.Secret) error { return nil })
	if err := m.verifies(t.Context(), t, ca.Data["ca.crt"]); err != nil {
		t.Errorf("kube-apiserver would not accept the serving certificate: %v", err)
	}
}

// onlyProbes holds the registration to what a proof needs.
func (c *cluster) onlyProbes(t *testing.T) {
	t.Helper()
	mutating, err := c.mutating().Get(t.Context(), configurationName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, webhook := range mutating.Webhooks {
		if len(webhook.MatchConditions) != 1 || webhook.MatchConditions[0].Name != "only-the-probe" {
			t.Errorf("webhook %q is for more than the probe: %v", webhook.Name, webhook.MatchConditions)
		}
	}
	if validating, err := c.validating().Get(t.Context(), configurationName, metav1.GetOptions{}); err == nil && len(validating.Webhooks) > 0 {
		t.Errorf("there are validating webhooks: %v", validating.Webhooks)
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
