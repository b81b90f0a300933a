// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

func TestClientCertificate(t *testing.T) {
	t.Parallel()
	end, err := parseNotAfter(certificatePEM(t))
	testutil.Must(t, err)
	certificate := certificatePEM(t)
	file := testutil.WriteFile(t, "client.pem", append(testkeys.P256(), certificate...))
	for name, tc := range map[string]struct {
		tls          rest.TLSClientConfig
		follows, err string
		none         bool
	}{
		"None":     {none: true},
		"Embedded": {tls: rest.TLSClientConfig{CertData: certificate}},
		"File":     {tls: rest.TLSClientConfig{CertFile: file}, follows: file},
		"Both":     {tls: rest.TLSClientConfig{CertData: certificate, CertFile: "none"}},
		"NoFile": {
			tls: rest.TLSClientConfig{CertFile: "none"}, err: "client-certificate of the kubeconfig: read none: no such file or directory",
		},
		"EmbeddedKey": {
			tls: rest.TLSClientConfig{CertData: testkeys.P256()}, err: "client-certificate-data of the kubeconfig: want PEM of a certificate",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := openClientCertificate(&rest.Config{TLSClientConfig: tc.tls})
			if err != nil || tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			follows := ""
			if c.file != nil {
				follows = c.file.Path()
			}
			testutil.Check(t, "result", []any{tc.none, tc.follows}, []any{c.notAfter == nil, follows})
			if tc.none {
				return
			}
			if c.notAfter().Sub(end).Abs() > time.Minute {
				t.Errorf("it ends at %s, want %s", c.notAfter(), end)
			}
			at := c.notAfter().UTC().Format(time.RFC3339)
			testutil.Check(t, "status before", "expires at "+at, c.status(c.notAfter().Add(-time.Second)))
			testutil.Check(t, "status then", "expired at "+at, c.status(c.notAfter()))
		})
	}
}
