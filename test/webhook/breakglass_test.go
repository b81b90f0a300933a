// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"os/exec"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
)

// TestBreakGlassByCommand takes the webhook out, and in again, with the binary.
func TestBreakGlassByCommand(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t)
	c.command(t, 0, "unregister")
	c.awaitUnbound(t)
	m.awaitRegistration(t, "off")
	// The manager lets that be, and does everything else.
	namespace := c.namespace(t)
	if pod := c.create(t, namespace, newPod()); pod.Spec.ServiceAccountName != "" {
		t.Errorf("a Pod was changed: %v", pod.Spec)
	}
	c.create(t, namespace, newPod(of("nobody")))
	c.awaitAccount(t, namespace, "default")
	m.awaitRegistration(t, "off")
	mutating, err := c.mutating().Get(t.Context(), configurationName, metav1.GetOptions{})
	testutil.Must(t, err)
	validating, err := c.validating().Get(t.Context(), configurationName, metav1.GetOptions{})
	testutil.Must(t, err)
	for _, object := range []metav1.Object{mutating, validating} {
		if got := object.GetAnnotations()["sa-controller-manager/registration"]; got != "off" {
			t.Errorf("the annotation of %T is %q, want \"off\"", object, got)
		}
	}
	if len(mutating.Webhooks)+len(validating.Webhooks) > 0 {
		t.Errorf("there are webhooks: %v, %v", mutating.Webhooks, validating.Webhooks)
	}
	c.command(t, 0, "register")
	c.awaitBound(t)
	m.awaitRegistration(t, "registered")
}

// command runs a subcommand of webhook, which has to end with that code, and returns its output.
func (c *cluster) command(t *testing.T, code int, args ...string) []byte {
	t.Helper()
	binary, err := shared.binary()
	testutil.Must(t, err)
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), binary.Path, append([]string{"webhook", "--kubeconfig=" + c.Kubeconfig()}, args...)...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); command.ProcessState.ExitCode() != code {
		t.Fatalf("webhook %v: %v, want exit code %d:\n%s%s", args, err, code, &stdout, &stderr)
	}
	return stdout.Bytes()
}
