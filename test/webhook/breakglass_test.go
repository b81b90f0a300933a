// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
)

// outLimit is how long it may take until the webhook is out.
const outLimit = 10 * time.Second

// TestBreakGlassByHand takes the webhook out as one would with kubectl alone.
func TestBreakGlassByHand(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t)
	begun := time.Now()
	c.patchMutating(t, `[{"op":"add","path":"/metadata/annotations","value":{"sa-controller-manager/registration":"off"}},
		{"op":"replace","path":"/webhooks","value":[]}]`)
	c.patchValidating(t, `[{"op":"replace","path":"/webhooks","value":[]}]`)
	c.awaitUnbound(t)
	await.Within(t, "the way out", time.Since(begun), outLimit)
	c.staysOut(t, m)

	// Taking the annotation back is the way in.
	c.patchMutating(t, `[{"op":"remove","path":"/metadata/annotations/sa-controller-manager~1registration"}]`)
	c.awaitBound(t)
	m.awaitRegistration(t, "registered")
}

// TestBreakGlassByDeletion deletes both configurations after one was annotated. The next
// leader has never seen either, and keeps off all the same.
func TestBreakGlassByDeletion(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t)
	c.patchMutating(t, `[{"op":"add","path":"/metadata/annotations","value":{"sa-controller-manager/registration":"off"}}]`)
	m.awaitRegistration(t, "off")
	if err := c.mutating().Delete(t.Context(), configurationName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.validating().Delete(t.Context(), configurationName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitUnbound(t)
	c.staysOut(t, m)
	c.awaitMutating(t, func(got *mutatingConfiguration) error {
		if got.Annotations["sa-controller-manager/registration"] != "off" || len(got.Webhooks) > 0 {
			return fmt.Errorf("want an empty one that says off, got: %v", got)
		}
		return nil
	})
	m.stop(t)
	c.staysOut(t, c.start(t, "--webhook-registration=url"))
}

// TestBreakGlassByCommand takes the webhook out, and in again, with the binary.
func TestBreakGlassByCommand(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t)
	c.command(t, "unregister")
	c.awaitUnbound(t)
	c.staysOut(t, m)
	mutating := c.awaitMutating(t, func(*mutatingConfiguration) error { return nil })
	validating := c.awaitValidating(t, func(*validatingConfiguration) error { return nil })
	for _, object := range []metav1.Object{mutating, validating} {
		if got := object.GetAnnotations()["sa-controller-manager/registration"]; got != "off" {
			t.Errorf("the annotation of %T is %q, want \"off\"", object, got)
		}
	}
	c.command(t, "register")
	c.awaitBound(t)
	m.awaitRegistration(t, "registered")
}

// command runs a subcommand of webhook.
func (c *cluster) command(t *testing.T, name string) {
	t.Helper()
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), binary.Path, "webhook", name, "--kubeconfig="+c.Kubeconfig()).CombinedOutput()
	if err != nil {
		t.Fatalf("webhook %s: %v:\n%s", name, err, output)
	}
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
