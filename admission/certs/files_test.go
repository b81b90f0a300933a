// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/testutil"
)

// pair is a serving certificate and its key as files hold them.
type pair struct{ cert, key []byte }

func newPair(t *testing.T, issuer *authority, now time.Time, hosts ...string) pair {
	t.Helper()
	leaf, err := issuer.leaf(now, 30*day, hosts)
	testutil.Must(t, err)
	key, err := pki.KeyPEM(leaf.PrivateKey.(crypto.Signer))
	testutil.Must(t, err)
	return pair{cert: pki.CertPEM(leaf.Leaf), key: key}
}

// issue returns a certificate of any content, self-signed without an issuer.
func issue(issuer *authority, template *x509.Certificate) (*authority, error) {
	if issuer == nil {
		issuer = &authority{}
	}
	made, key, err := pki.Issue(template, issuer.cert, issuer.key)
	return &authority{cert: made, key: key}, err
}

// selfSigned is a pair whose certificate has signed itself, and is no CA.
func selfSigned(t *testing.T) pair {
	t.Helper()
	template := madeAt(t, start, 30*day).cert
	template.DNSNames, template.PublicKey = []string{"localhost"}, nil
	template.IsCA, template.MaxPathLen, template.MaxPathLenZero = false, 0, false
	made, err := issue(nil, template)
	testutil.Must(t, err)
	key, err := pki.KeyPEM(made.key)
	testutil.Must(t, err)
	return pair{cert: pki.CertPEM(made.cert), key: key}
}

func (p pair) with(ca *authority) pair {
	return pair{cert: append(bytes.Clone(p.cert), pki.CertPEM(ca.cert)...), key: p.key}
}

func writeFile(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	testutil.Must(t, os.WriteFile(path, content, 0o600))
	return path
}

func TestNewFiles(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"a": 0})
	now := start.Add(day)
	good, own := newPair(t, c["a"], now, "127.0.0.1", "localhost"), selfSigned(t)
	for name, tc := range map[string]struct {
		reason  string
		pair    pair
		needsCA bool
		hosts   []string
		wantErr string
		notYet  string // what Ready says
		bundle  []byte
	}{
		"with its CA": {
			reason: "the CA in the chain is what to register",
			pair:   good.with(c["a"]), needsCA: true, hosts: []string{"127.0.0.1", "localhost"},
			bundle: pki.CertPEM(c["a"].cert),
		},
		"no CA": {
			reason: "who registers it by hand knows the CA",
			pair:   good,
		},
		"signed by itself": {
			reason: "it is its own CA",
			pair:   own, needsCA: true, bundle: own.cert,
		},
		"no CA to register": {
			pair: good, needsCA: true, wantErr: `tls.crt": it contains no CA to register with kube-apiserver: the file must end with the CA's ` +
				`certificate`,
		},
		"other key": {
			pair: pair{good.cert, newPair(t, c["a"], now, "127.0.0.1").key}, wantErr: "private key does not match",
		},
		"rubbish":    {pair: pair{[]byte("rubbish"), good.key}, wantErr: "failed to find any PEM data"},
		"no names":   {pair: newPair(t, c["a"], now), wantErr: "no subject alternative name"},
		"other host": {pair: good, hosts: []string{"webhook.kube-system.svc"}, wantErr: "not webhook.kube-system.svc"},
		"expired": {
			reason: "the controllers of this process are needed all the same",
			pair:   newPair(t, c["a"], start.Add(-40*day), "127.0.0.1"), notYet: "certificate expired at",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			config := FilesConfig{
				CertFile: writeFile(t, dir, "tls.crt", tc.pair.cert), KeyFile: writeFile(t, dir, "tls.key", tc.pair.key),
				NeedsCA: tc.needsCA, Hosts: tc.hosts, Clock: clocktesting.NewFakeClock(now),
			}
			f, err := NewFiles(config)
			testutil.CheckError(t, "NewFiles", tc.wantErr, err)
			if err != nil {
				return
			}
			testutil.CheckError(t, "Ready", tc.notYet, f.Ready())
			testutil.Check(t, tc.reason+": the caBundle", string(tc.bundle), string(f.CABundle()))
		})
	}
}

// A changed pair is taken when it is whole and usable, and only then.
func TestFilesReload(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"a": 0})
	now, dir := start.Add(day), t.TempDir()
	first, second := newPair(t, c["a"], now, "127.0.0.1").with(c["a"]), newPair(t, c["a"], now.Add(time.Minute), "127.0.0.1").with(c["a"])
	certFile, keyFile := writeFile(t, dir, "tls.crt", first.cert), writeFile(t, dir, "tls.key", first.key)
	clock := clocktesting.NewFakeClock(now)
	f, err := NewFiles(FilesConfig{CertFile: certFile, KeyFile: keyFile, NeedsCA: true, Hosts: []string{"127.0.0.1"}, Clock: clock})
	testutil.Must(t, err)
	changes := make(chan struct{}, 10)
	f.OnChange(func() { changes <- struct{}{} })
	testutil.Start(t, f.Run)
	f.Registered([][]byte{pki.CertPEM(c["a"].cert)}, false)
	clock.Step(propagation)
	serves := func(want pair) bool {
		got, err := f.GetCertificate(nil)
		return err == nil && bytes.HasPrefix(want.cert, pki.CertPEM(got.Leaf))
	}
	// What the library accepts and callers would not: load is what it calls.
	expired := newPair(t, c["a"], start.Add(-40*day), "127.0.0.1").with(c["a"])
	writeFile(t, dir, "tls.crt", expired.cert)
	writeFile(t, dir, "tls.key", expired.key)
	testutil.Must(t, f.pair.RunOnce(t.Context()))
	if err := f.load(); err == nil || !serves(first) {
		t.Errorf("an expired pair: load = %v, serving the previous one: %t", err, serves(first))
	}
	// Half of a pair is what a reader finds in the middle of a replacement.
	writeFile(t, dir, "tls.crt", second.cert)
	if err := f.pair.RunOnce(t.Context()); err == nil || !serves(first) {
		t.Errorf("half a pair: %v, serving the previous one: %t", err, serves(first))
	}
	writeFile(t, dir, "tls.key", second.key)
	select {
	case <-changes:
	case <-time.After(10 * time.Second):
		t.Fatal("the new pair was not noticed")
	}
	if !serves(second) {
		t.Error("another pair is served than the new one")
	}
}
