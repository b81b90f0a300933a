// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/devcluster"
)

// TestOnlyKubeAPIServerMayCall has the webhook ask for a client certificate. Strangers
// learn nothing, not even whether what they ask for exists.
func TestOnlyKubeAPIServerMayCall(t *testing.T) {
	c := controlPlane(t)
	m := c.manage(t, "--webhook-client-ca-file="+shared.caller.caFile(), "--webhook-client-allowed-names=kube-apiserver")
	namespace := c.namespace(t)
	complete(t, c.create(t, namespace, newPod()), "default")
	c.refuse(t, namespace, newPod(of("nobody")), `serviceaccount "nobody" not found`)

	stranger := m.client(t, nil)
	if got, err := m.call(t.Context(), stranger, "/readyz", nil); err != nil || got.code != http.StatusOK {
		t.Errorf("readyz without a certificate: got %+v, %v; want 200", got, err)
	}
	var said []string
	for _, path := range []string{"/mutate?timeout=10s", "/validate?timeout=10s", "/nothing"} {
		for _, account := range []string{"default", "nobody"} {
			got, err := m.call(t.Context(), stranger, path, review(t, namespace, newPod(of(account))))
			if err != nil || got.code != http.StatusUnauthorized {
				t.Errorf("%s about account %s: got %+v, %v; want 401", path, account, got, err)
			}
			said = append(said, got.body)
		}
	}
	for _, body := range said {
		if body != said[0] || strings.Contains(body, namespace) {
			t.Errorf("the answers tell strangers something: %q", said)
		}
	}
}

// TestStrangersCertificate shows one that somebody else has issued. The handshake fails,
// which is counted.
func TestStrangersCertificate(t *testing.T) {
	c := controlPlane(t)
	m := c.start(t, "--webhook-registration=none", "--webhook-client-ca-file="+shared.caller.caFile())
	m.awaitReady(t)
	ca, err := newAuthority("somebody else", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := ca.client("kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	theirs := m.client(t, func(config *tls.Config) {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	})
	if got, err := m.call(t.Context(), theirs, "/readyz", nil); err == nil {
		t.Errorf("got %+v, want no connection", got)
	}
	m.awaitHandshakeErrors(t, "client_certificate", 1)
	named := c.start(t, "--webhook-registration=none", "--webhook-client-ca-file="+shared.caller.caFile(), "--webhook-client-allowed-names=somebody")
	named.awaitReady(t)
	ours := named.client(t, func(config *tls.Config) { config.Certificates = []tls.Certificate{shared.caller.certificate} })
	if got, err := named.call(t.Context(), ours, "/mutate", review(t, "default", newPod(of("nobody")))); err != nil || got.code != http.StatusUnauthorized {
		t.Errorf("with the right CA and another name: got %+v, %v; want 401", got, err)
	}
	ours = m.client(t, func(config *tls.Config) { config.Certificates = []tls.Certificate{shared.caller.certificate} })
	if got, err := m.call(t.Context(), ours, "/mutate", review(t, "default", newPod(of("nobody")))); err != nil || got.code != http.StatusOK {
		t.Errorf("with the right certificate: got %+v, %v; want 200", got, err)
	}
}

func (m *manager) handshakeErrors(t *testing.T, reason string) float64 {
	t.Helper()
	return m.metric(t, "sacm_webhook_tls_handshake_errors_total", devcluster.Labels{"reason": reason})
}

// awaitHandshakeErrors awaits exactly so many. Who fails to shake hands learns of it before
// the webhook has counted it.
func (m *manager) awaitHandshakeErrors(t *testing.T, reason string, want float64) {
	t.Helper()
	poll(t, "await that failed handshakes are counted", func(context.Context) error {
		if got := m.handshakeErrors(t, reason); got != want {
			return fmt.Errorf("%v are counted as %s, want %v", got, reason, want)
		}
		return nil
	})
}

// TestProtocols is what the port speaks by default.
func TestProtocols(t *testing.T) {
	c := controlPlane(t)
	m := c.start(t, "--webhook-registration=none")
	m.awaitReady(t)
	t.Run("NoHTTP2", func(t *testing.T) {
		got, err := m.call(t.Context(), m.client(t, nil), "/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got.protocol != "HTTP/1.1" {
			t.Errorf("got %s, want HTTP/1.1", got.protocol)
		}
	})
	t.Run("NoTLS11", func(t *testing.T) {
		old := m.client(t, func(config *tls.Config) { config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 })
		if _, err := m.call(t.Context(), old, "/readyz", nil); err == nil || !strings.Contains(err.Error(), "protocol version not supported") {
			t.Errorf("got %v, want that the version is refused", err)
		}
	})
	// Go's client cannot ask for a renegotiation, so openssl does.
	t.Run("NoRenegotiation", func(t *testing.T) {
		openssl := exec.CommandContext(limited(t), "openssl", "s_client", "-tls1_2", "-connect", "127.0.0.1:"+strconv.Itoa(m.port))
		openssl.Stdin = strings.NewReader("R\n")
		output, err := openssl.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || !strings.Contains(string(output), "RENEGOTIATING") || !strings.Contains(string(output), "alert unexpected message") {
			t.Errorf("got %v, want that the renegotiation is refused:\n%s", err, output)
		}
	})
}

// TestNamesOfPods asks about Pods whose namespace only the request has, and that have no
// name yet.
func TestNamesOfPods(t *testing.T) {
	c := controlPlane(t)
	m := c.start(t, "--webhook-registration=none")
	m.awaitReady(t)
	namespace := c.namespace(t)
	got := m.answer(t, "/mutate?timeout=10s", review(t, namespace, newPod()))
	if !got.Allowed || !strings.Contains(string(got.Patch), `"default"`) || got.UID != "question" {
		t.Errorf("a Pod without namespace and name: %+v, patch %s", got, got.Patch)
	}
	cases := map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"generateName": {func(*corev1.Pod) {}, `pods "pod-" is forbidden: `},
		"name":         {func(pod *corev1.Pod) { pod.Name = "mine" }, `pods "mine" is forbidden: `},
		"neither":      {func(pod *corev1.Pod) { pod.GenerateName = "" }, `pods "Unknown" is forbidden: `},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := m.answer(t, "/mutate?timeout=10s", review(t, namespace, newPod(of("nobody"), tc.change)))
			want := tc.want + "error looking up service account " + namespace + `/nobody: serviceaccount "nobody" not found`
			if got.Allowed || got.Result.Message != want || got.Result.Code != http.StatusForbidden {
				t.Errorf("got %+v, want %q", got.Result, want)
			}
		})
	}
}

// TestMissingNamespace: the error of the namespace comes before that of an account missing in it,
// also during mutation.
func TestMissingNamespace(t *testing.T) {
	c := controlPlane(t)
	m := c.start(t, "--webhook-registration=none", "--webhook-allow-broad-rules", "--enable-admission-plugins=NamespaceLifecycle")
	m.awaitReady(t)
	for _, path := range []string{"/mutate?timeout=10s", "/validate?timeout=10s"} {
		got := m.answer(t, path, review(t, "nowhere", newPod(of("nobody"))))
		if want := `namespaces "nowhere" not found`; got.Allowed || got.Result.Message != want || got.Result.Code != http.StatusNotFound {
			t.Errorf("%s: got %+v, want %q", path, got.Result, want)
		}
	}
}
