// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"testing"
	"testing/synctest"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/testutil"
)

const handshakeErrors = "sacm_webhook_tls_handshake_errors_total"

func failures(reason string, count int) []string {
	if reason == "" {
		return []string{}
	}
	return []string{fmt.Sprintf("%s{reason=%q} %d", handshakeErrors, reason, count)}
}

// TestServerTLS asks whether the server is ready, and has it decide.
func TestServerTLS(t *testing.T) {
	t.Parallel()
	caller, callers := newCertificate(t)
	stranger, _ := newCertificate(t)
	const (
		ok      = "200 HTTP/1.1 ok" // although the client can do HTTP/2
		yes     = "200 v1 uid=u-1 " + patched
		tooOld  = "remote error: tls: protocol version not supported"
		noTrust = "certificate signed by unknown authority"
	)
	asks := func(names ...string) func(*ServerConfig) {
		return func(c *ServerConfig) { c.TLS.ClientCAs, c.ClientNames = callers, names }
	}
	shows := func(certificate tls.Certificate, version uint16) func(*tls.Config) {
		return func(c *tls.Config) {
			c.MaxVersion = version
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
		}
	}
	for name, tc := range map[string]struct {
		reason        string
		server        func(*ServerConfig)
		client        func(*tls.Config)
		ready, review string // parts of the answers
		failed        string // why both handshakes fail
	}{
		"default": {ready: ok, review: yes},
		"TLS 1.1 allowed": {
			reason: "a lower minimum is raised", server: func(c *ServerConfig) { c.TLS.MinVersion = tls.VersionTLS10 },
			client: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11 }, ready: tooOld, review: tooOld, failed: handshakeOther,
		},
		"TLS 1.3 wanted": {
			reason: "a higher minimum stays", server: func(c *ServerConfig) { c.TLS.MinVersion = tls.VersionTLS13 },
			client: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, ready: tooOld, review: tooOld, failed: handshakeOther,
		},
		"another caBundle": {
			reason: "the apiserver after another client has edited it", client: func(c *tls.Config) { c.RootCAs = x509.NewCertPool() },
			ready: noTrust, review: noTrust, failed: handshakeRefused,
		},
		"another caBundle, TLS 1.2": {
			reason: "the alert comes at another time",
			client: func(c *tls.Config) { c.RootCAs, c.MaxVersion = x509.NewCertPool(), tls.VersionTLS12 },
			ready:  noTrust, review: noTrust, failed: handshakeRefused,
		},
		"no certificate": {
			reason: "a kubelet asks for readiness, and may not ask for admission", server: asks(),
			ready: ok, review: "401 v1 uid= 401 Unauthorized: a client certificate is required",
		},
		"theirs":  {reason: "the apiserver", server: asks(), client: shows(caller, 0), ready: ok, review: yes},
		"allowed": {reason: "the apiserver, by name", server: asks("other", "test"), client: shows(caller, 0), ready: ok, review: yes},
		"kubelet": {
			reason: "the cluster's CA has certified kubelets and users too", server: asks("other", "tes", ""), client: shows(caller, 0), ready: ok,
			review: "401 v1 uid= 401 Unauthorized: the common name of the client certificate is not an allowed one",
		},
		"none, by name": {
			reason: "no certificate has no name", server: asks(""), ready: ok,
			review: "401 v1 uid= 401 Unauthorized: a client certificate is required",
		},
		// In TLS 1.3 the client may write its request before it reads the alert.
		"stranger": {
			reason: "of another CA", server: asks(), client: shows(stranger, tls.VersionTLS12),
			ready: "remote error: tls: ", review: "remote error: tls: ", failed: handshakeStranger,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				registry := metrics.NewKubeRegistry()
				s := start(t, func(c *ServerConfig) {
					c.Metrics = NewMetrics(registry.MustRegister)
					if tc.server != nil {
						tc.server(c)
					}
				})
				if tc.client != nil {
					tc.client(s.tls)
				}
				testutil.CheckContains(t, tc.reason+": readyz", tc.ready, s.get("/readyz"))
				testutil.CheckContains(t, tc.reason+": review", tc.review, s.review(t))
				synctest.Wait()
				s.end(t)
				testutil.Check(t, tc.reason+": failed handshakes", failures(tc.failed, 2), testutil.Series(registry, handshakeErrors))
			})
		})
	}
}

// TestHandshakeReason has what TestServerTLS has not: clients that speak no TLS, that say nothing, and that leave.
func TestHandshakeReason(t *testing.T) {
	t.Parallel()
	for _, err := range []error{tls.RecordHeaderError{}, os.ErrDeadlineExceeded, io.EOF} {
		testutil.Check(t, err.Error(), handshakeOther, handshakeReason(err))
	}
}
