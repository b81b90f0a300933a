// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
)

// certificateFiles are a serving certificate for 127.0.0.1 that vouches for itself.
type certificateFiles struct {
	certificate, key string // paths
	pem              []byte
}

func newCertificateFiles(t *testing.T) certificateFiles {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := certificateFiles{certificate: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), pem: certificate}
	for path, content := range map[string][]byte{files.certificate: certificate, files.key: key} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// flags are those of a manager that a person registers.
func (f certificateFiles) flags(more ...string) []string {
	return append([]string{
		"--webhook-registration=none",
		"--webhook-tls-cert-file=" + f.certificate,
		"--webhook-tls-private-key-file=" + f.key,
	}, more...)
}

// registerByHand does what a person would do for a manager, and returns once it counts.
func (c *cluster) registerByHand(t *testing.T, m *manager, caBundle []byte) {
	t.Helper()
	client := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{
			URL: new(fmt.Sprintf("https://127.0.0.1:%d/%s", m.port, path)), CABundle: caBundle,
		}
	}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	versions := []string{"v1", "v1beta1"}
	sideEffects := new(admissionregistrationv1.SideEffectClassNoneOnDryRun)
	meta := metav1.ObjectMeta{Name: configurationName}
	_, err := c.mutating().Create(t.Context(), &mutatingConfiguration{
		ObjectMeta: meta,
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mutate.by.hand", ClientConfig: client("mutate"), Rules: rules, AdmissionReviewVersions: versions, SideEffects: sideEffects,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.validating().Create(t.Context(), &validatingConfiguration{
		ObjectMeta: meta,
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "validate.by.hand", ClientConfig: client("validate"), Rules: rules, AdmissionReviewVersions: versions, SideEffects: sideEffects,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.awaitBound(t)
}
