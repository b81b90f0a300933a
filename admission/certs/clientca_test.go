// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/tls"
	"crypto/x509"
	"net"
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
	c, err := NewClientCA(file)
	testutil.Must(t, err)
	testutil.Start(t, c.Run)
	serving, err := cas[0].leaf(now, day, []string{"127.0.0.1"})
	testutil.Must(t, err)
	server := &tls.Config{Certificates: []tls.Certificate{*serving}, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	server.GetConfigForClient = c.ConfigForClient(server.Clone())

	letsIn := func(when string, first, second bool) {
		t.Helper()
		testutil.Check(t, when+": a client of the first CA gets in", first, handshake(t, server, clientCert(t, cas[0], now)) == nil)
		testutil.Check(t, when+": a client of the second CA gets in", second, handshake(t, server, clientCert(t, cas[1], now)) == nil)
	}
	letsIn("at first", true, false)
	writeFile(t, dir, "ca.crt", []byte("rubbish"))
	if err := c.content.RunOnce(t.Context()); err == nil {
		t.Error("a damaged file is accepted")
	}
	letsIn("after damage", true, false)
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
	letsIn("after the exchange", false, true)
}

func clientCert(t *testing.T, ca *authority, now time.Time) tls.Certificate {
	t.Helper()
	leaf, err := ca.leaf(now, day, nil)
	testutil.Must(t, err)
	leaf.Leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	client, err := issue(ca, leaf.Leaf)
	testutil.Must(t, err)
	return tls.Certificate{Certificate: [][]byte{client.cert.Raw}, PrivateKey: client.key}
}

// handshake is what the server makes of a client.
func handshake(t *testing.T, server *tls.Config, client tls.Certificate) error {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	go func() {
		connection := tls.Client(there, &tls.Config{Certificates: []tls.Certificate{client}, InsecureSkipVerify: true})
		_ = connection.Handshake()
		_, _ = connection.Read(make([]byte, 1))
	}()
	return tls.Server(here, server).HandshakeContext(t.Context())
}
