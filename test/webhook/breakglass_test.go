// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"fmt"
	"os/exec"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestBreakGlassByCommand takes the webhook out, and in again, with the binary.
func TestBreakGlassByCommand(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t)
	c.command(t, 0, "unregister")
	c.awaitUnbound(t)
	c.staysOut(t, m)
	mutating := c.awaitMutating(t, func(*mutatingConfiguration) error { return nil })
	validating := c.awaitValidating(t, func(*validatingConfiguration) error { return nil })
	for _, object := range []metav1.Object{mutating, validating} {
		if got := object.GetAnnotations()["sa-controller-manager/registration"]; got != "off" {
			t.Errorf("the annotation of %T is %q, want \"off\"", object, got)
		}
	}
	c.command(t, 0, "register")
	c.awaitBound(t)
	m.awaitRegistration(t, "registered")
}

// command runs a subcommand of webhook, which has to end with that code, and returns its output.
func (c *cluster) command(t *testing.T, code int, args ...string) []byte {
	t.Helper()
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), binary.Path, append([]string{"webhook", "--kubeconfig=" + c.Kubeconfig()}, args...)...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); command.ProcessState.ExitCode() != code {
		t.Fatalf("webhook %v: %v, want exit code %d:\n%s%s", args, err, code, &stdout, &stderr)
	}
	return stdout.Bytes()
}

// staysOut shows that a manager which sees that it is switched off lets it be, while
// it goes on with everything else.
func (c *cluster) staysOut(t *testing.T, m *manager) {
	t.Helper()
	m.awaitRegistration(t, "off")
	namespace := c.namespace(t)
	if pod := c.create(t, namespace, newPod()); pod.Spec.ServiceAccountName != "" {
		t.Errorf("a Pod was changed: %v", pod.Spec)
	}
	c.create(t, namespace, newPod(of("nobody")))
	c.awaitAccount(t, namespace, "default")
	m.awaitRegistration(t, "off")
	if err := c.empty(t); err != nil {
		t.Error(err)
	}
}

// empty tells which configuration has webhooks.
func (c *cluster) empty(t *testing.T) error {
	t.Helper()
	mutating, err := c.mutating().Get(t.Context(), configurationName, metav1.GetOptions{})
	if err == nil && len(mutating.Webhooks) > 0 {
		return fmt.Errorf("the MutatingWebhookConfiguration has webhooks: %v", mutating.Webhooks)
	}
	validating, err := c.validating().Get(t.Context(), configurationName, metav1.GetOptions{})
	if err == nil && len(validating.Webhooks) > 0 {
		return fmt.Errorf("the ValidatingWebhookConfiguration has webhooks: %v", validating.Webhooks)
	}
	return nil
}
