// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/testutil"
)

func TestFailedHandshakesAreCounted(t *testing.T) {
	t.Parallel()
	const name = "sacm_webhook_tls_handshake_errors_total"
	stranger, _ := newCertificate(t)
	_, callers := newCertificate(t)
	cases := map[string]struct {
		reason string
		server func(*ServerConfig)
		call   func(*testing.T, *site)
		want   string // the label, empty for none
	}{
		"fine": {reason: "not a failure", call: func(_ *testing.T, s *site) { s.get("/readyz") }},
		"another caBundle": {reason: "the apiserver after somebody has edited it",
			call: func(_ *testing.T, s *site) { s.tls.RootCAs = x509.NewCertPool(); s.get("/readyz") }, want: handshakeRefused},
		"another caBundle, TLS 1.2": {
			reason: "the alert comes at another time",
			call: func(_ *testing.T, s *site) {
				s.tls.RootCAs, s.tls.MaxVersion = x509.NewCertPool(), tls.VersionTLS12
				s.get("/readyz")
			},
			want: handshakeRefused,
		},
		"another name": {reason: "is an alert about the certificate too",
			call: func(_ *testing.T, s *site) { s.tls.ServerName = "elsewhere"; s.get("/readyz") }, want: handshakeRefused},
		"stranger": {
			reason: "a certificate that nobody here has issued",
			server: func(c *ServerConfig) { c.TLS.ClientCAs = callers },
			call: func(_ *testing.T, s *site) {
				s.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &stranger, nil }
				s.get("/readyz")
			},
			want: handshakeStranger,
		},
		"old version": {reason: "nothing in common", call: func(_ *testing.T, s *site) { s.tls.MaxVersion = tls.VersionTLS11; s.get("/readyz") },
			want: handshakeOther},
		"no certificate": {
			reason: "ours is not there yet",
			server: func(c *ServerConfig) {
				c.TLS.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("none yet") }
			},
			call: func(_ *testing.T, s *site) { s.get("/readyz") },
			want: handshakeOther,
		},
		"plain HTTP": {
			reason: "somebody forgot the s", call: func(t *testing.T, s *site) { s.sends(t, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n") },
			want: handshakeNotTLS,
		},
		"port check": {
			reason: "a load balancer looks if it is open", call: func(t *testing.T, s *site) { s.sends(t, "") }, want: handshakeClosed,
		},
		"silence": {reason: "somebody holds a connection", call: func(t *testing.T, s *site) { s.dialSilent(t); time.Sleep(time.Minute) },
			want: handshakeTimeout},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := metrics.NewKubeRegistry()
				s := start(t, func(c *ServerConfig) {
					c.Metrics = NewMetrics(registry.MustRegister)
					if tc.server != nil {
						tc.server(c)
					}
				})
				tc.call(t, s)
				s.client.CloseIdleConnections()
				synctest.Wait()
				s.end(t)
				var want []string
				if tc.want != "" {
					want = []string{fmt.Sprintf("%s{%s} 1", name, tc.want)}
				}
				var got []string
				for _, line := range gathered(t, registry) {
					if len(line) > len(name) && line[:len(name)] == name {
						got = append(got, line)
					}
				}
				testutil.Check(t, tc.reason, want, got)
			})
		})
	}
}

// sends dials, writes what is no TLS, and leaves.
func (s *site) sends(t *testing.T, text string) {
	t.Helper()
	conn, err := s.listener.DialContext(t.Context())
	testutil.Must(t, err)
	if _, err := conn.Write([]byte(text)); err != nil && text != "" {
		t.Error(err)
	}
	synctest.Wait()
	_ = conn.Close()
}
