// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"testing"
	"time"

	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/testutil"
)

// The client CA of a running server is exchanged between two handshakes.
func TestClientCA(t *testing.T) {
	t.Parallel()
	now := time.Now()
	cas := []*authority{madeAt(t, now, day), madeAt(t, now, day)}
	dir := t.TempDir()
	if _, err := NewClientCA(filepath.Join(dir, "ca.crt")); err == nil {
		t.Error("a client CA is read from a file that does not exist")
	}
	file := writeFile(t, dir, "ca.crt", pki.CertPEM(cas[0].cert))
	c := testutil.Get(NewClientCA(file))(t)
	testutil.Start(t, c.Run)
	trusts := func(when string, want *authority) {
		t.Helper()
		config := testutil.Get(c.ConfigForClient(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert})(nil))(t)
		pool := x509.NewCertPool()
		pool.AddCert(want.cert)
		if !config.ClientCAs.Equal(pool) || config.ClientAuth != tls.RequireAndVerifyClientCert {
			t.Errorf("%s: clients of another CA get in", when)
		}
	}
	trusts("at first", cas[0])
	writeFile(t, dir, "ca.crt", []byte("rubbish"))
	if err := c.content.RunOnce(t.Context()); err == nil {
		t.Error("a damaged file is accepted")
	}
	trusts("after damage", cas[0])
	previous := c.Pool()
	writeFile(t, dir, "ca.crt", pki.CertPEM(cas[1].cert))
	deadline := time.After(10 * time.Second)
	for c.Pool().Equal(previous) {
		select {
		case <-deadline:
			t.Fatal("the changed file was not noticed")
		case <-time.After(10 * time.Millisecond):
		}
	}
	trusts("after the exchange", cas[1])
}
