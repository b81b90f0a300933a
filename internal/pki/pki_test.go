// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
)

func TestIssue(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	template := func(life time.Duration) *x509.Certificate {
		return &x509.Certificate{
			NotBefore: start, NotAfter: start.Add(life), KeyUsage: x509.KeyUsageCertSign, IsCA: true, DNSNames: []string{"localhost"},
		}
	}
	ca, caKey, err := Issue(template(time.Hour), nil, nil)
	testutil.Must(t, err)
	for name, tc := range map[string]struct {
		reason   string
		life     time.Duration
		notAfter time.Time
	}{
		"Shorter": {"it ends when the caller says", time.Minute, start.Add(time.Minute)},
		"Longer":  {"nothing accepts it after the end of its issuer", 2 * time.Hour, ca.NotAfter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made, key, err := Issue(template(tc.life), ca, caKey)
			testutil.Must(t, err)
			testutil.Check(t, tc.reason, tc.notAfter, made.NotAfter)
			roots := x509.NewCertPool()
			roots.AddCert(ca)
			testutil.Get(made.Verify(x509.VerifyOptions{Roots: roots, DNSName: "localhost", CurrentTime: start}))(t)
			keyPEM := testutil.Get(KeyPEM(key))(t)
			testutil.Get(tls.X509KeyPair(CertPEM(made), keyPEM))(t)
			testutil.Expect(t, made.SerialNumber.Cmp(ca.SerialNumber) != 0, "two certificates have one serial number")
		})
	}
}
