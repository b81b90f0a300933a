// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// pair is a serving certificate and its key as files hold them.
type pair struct{ cert, key []byte }

func newPair(t *testing.T, issuer *authority, now time.Time, hosts ...string) pair {
	t.Helper()
	leaf, err := issuer.leaf(now, 30*day, hosts)
	if err != nil {
		t.Fatal(err)
	}
	key, err := (&authority{key: leaf.PrivateKey.(crypto.Signer)}).keyPEM()
	if err != nil {
		t.Fatal(err)
	}
	return pair{cert: certPEM(leaf.Leaf), key: key}
}

// selfSigned is a pair whose certificate has signed itself, and is no CA.
func selfSigned(t *testing.T) pair {
	t.Helper()
	made, err := newAuthority(start, 30*day)
	if err != nil {
		t.Fatal(err)
	}
	template := made.cert
	template.DNSNames, template.IsCA, template.MaxPathLenZero, template.PublicKey = []string{"localhost"}, false, false, nil
	if made, err = issue(nil, template); err != nil {
		t.Fatal(err)
	}
	key, err := made.keyPEM()
	if err != nil {
		t.Fatal(err)
	}
	return pair{cert: certPEM(made.cert), key: key}
}

func (p pair) with(ca *authority) pair {
	return pair{cert: append(bytes.Clone(p.cert), certPEM(ca.cert)...), key: p.key}
}

func writeFile(t *testing.T, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func follow(t *testing.T, runner func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runner(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestNewFiles(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"a": 0})
	now := start.Add(day)
	good, own := newPair(t, c["a"], now, "127.0.0.1", "localhost"), selfSigned(t)
	caKey, err := c["a"].keyPEM()
	if err != nil {
		t.Fatal(err)
	}
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
			bundle: certPEM(c["a"].cert),
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
			pair: good, needsCA: true, wantErr: `tls.crt": it contains no CA to register with kube-apiserver: the file must end with the CA's certificate`,
		},
		"other key": {
			pair: pair{good.cert, newPair(t, c["a"], now, "127.0.0.1").key}, wantErr: "private key does not match",
		},
		"rubbish":       {pair: pair{[]byte("rubbish"), good.key}, wantErr: "failed to find any PEM data"},
		"empty":         {pair: pair{nil, good.key}, wantErr: "missing content"},
		"no names":      {pair: newPair(t, c["a"], now), wantErr: "no subject alternative name"},
		"other host":    {pair: good, hosts: []string{"webhook.kube-system.svc"}, wantErr: "not webhook.kube-system.svc"},
		"a CA, no name": {pair: pair{certPEM(c["a"].cert), caKey}, wantErr: "no subject alternative name"},
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
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("NewFiles = %v, want an error with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			ready := f.Ready()
			if (tc.notYet == "") != (ready == nil) || ready != nil && !strings.Contains(ready.Error(), tc.notYet) {
				t.Errorf("Ready = %v, want %q", ready, tc.notYet)
			}
			if !bytes.Equal(f.CABundle(), tc.bundle) {
				t.Errorf("%s: the caBundle is\n%s\nwant\n%s", tc.reason, f.CABundle(), tc.bundle)
			}
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
	f, err := NewFiles(FilesConfig{
		CertFile: certFile, KeyFile: keyFile, NeedsCA: true, Hosts: []string{"127.0.0.1"}, Clock: clocktesting.NewFakeClock(now),
	})
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan struct{}, 10)
	f.OnChange(func() { changes <- struct{}{} })
	follow(t, f.Run)
	f.Registered([][]byte{certPEM(c["a"].cert)}, false)
	serves := func(want pair) bool {
		got, err := f.GetCertificate(nil)
		return err == nil && bytes.HasPrefix(want.cert, certPEM(got.Leaf))
	}
	for name, bad := range map[string]pair{
		"expired":      newPair(t, c["a"], start.Add(-40*day), "127.0.0.1").with(c["a"]),
		"another name": newPair(t, c["a"], now, "example.org").with(c["a"]),
		"without CA":   newPair(t, c["a"], now, "127.0.0.1"),
	} {
		// What the library accepts and callers would not: load is what it calls.
		writeFile(t, dir, "tls.crt", bad.cert)
		writeFile(t, dir, "tls.key", bad.key)
		if err := f.pair.RunOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.load(); err == nil || !serves(first) {
			t.Errorf("%s: load = %v, serving the previous one: %t", name, err, serves(first))
		}
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

// The client CA of a running server is exchanged between two handshakes.
func TestClientCA(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var cas [2]*authority
	for i := range cas {
		var err error
		if cas[i], err = newAuthority(now, day); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if _, err := NewClientCA(filepath.Join(dir, "ca.crt")); err == nil {
		t.Error("a client CA is read from a file that does not exist")
	}
	file := writeFile(t, dir, "ca.crt", certPEM(cas[0].cert))
	c, err := NewClientCA(file)
	if err != nil {
		t.Fatal(err)
	}
	follow(t, c.Run)
	serving, err := cas[0].leaf(now, day, []string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{*serving}, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	server.GetConfigForClient = c.ConfigForClient(server.Clone())

	if err := handshake(t, server, clientCert(t, cas[0], now)); err != nil {
		t.Errorf("a client of the CA is refused: %v", err)
	}
	if err := handshake(t, server, clientCert(t, cas[1], now)); err == nil {
		t.Error("a stranger gets in")
	}
	writeFile(t, dir, "ca.crt", []byte("rubbish"))
	if err := c.content.RunOnce(t.Context()); err == nil || c.load() != nil || handshake(t, server, clientCert(t, cas[0], now)) != nil {
		t.Errorf("a damaged file shut the door: %v", err)
	}
	previous := c.Pool()
	writeFile(t, dir, "ca.crt", certPEM(cas[1].cert))
	deadline := time.After(10 * time.Second)
	for c.Pool().Equal(previous) {
		select {
		case <-deadline:
			t.Fatal("the changed file was not noticed")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := handshake(t, server, clientCert(t, cas[1], now)); err != nil {
		t.Errorf("a client of the new CA is refused: %v", err)
	}
	if err := handshake(t, server, clientCert(t, cas[0], now)); err == nil {
		t.Error("a client of the previous CA still gets in")
	}
}

func clientCert(t *testing.T, ca *authority, now time.Time) tls.Certificate {
	t.Helper()
	leaf, err := ca.leaf(now, day, nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf.Leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	client, err := issue(ca, leaf.Leaf)
	if err != nil {
		t.Fatal(err)
	}
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

// rotating is Files whose content a test changes, step by step.
type rotating struct {
	*Files
	t     *testing.T
	dir   string
	clock *clocktesting.FakeClock
}

const testOverlap = 10 * time.Minute

func newRotating(t *testing.T, first pair, now time.Time) *rotating {
	t.Helper()
	r := &rotating{t: t, dir: t.TempDir(), clock: clocktesting.NewFakeClock(now)}
	config := FilesConfig{
		CertFile: writeFile(t, r.dir, "tls.crt", first.cert), KeyFile: writeFile(t, r.dir, "tls.key", first.key),
		NeedsCA: true, Overlap: testOverlap, Clock: r.clock,
	}
	var err error
	if r.Files, err = NewFiles(config); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rotating) replaceFiles(p pair) {
	r.t.Helper()
	writeFile(r.t, r.dir, "tls.crt", p.cert)
	writeFile(r.t, r.dir, "tls.key", p.key)
	if err := r.pair.RunOnce(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	if err := r.load(); err != nil {
		r.t.Fatal(err)
	}
	r.step()
}

// after has time pass, and reports whether p is served then.
func (r *rotating) after(d time.Duration, p pair) bool {
	r.clock.Step(d)
	r.step()
	return bytes.HasPrefix(p.cert, certPEM(r.current.Load().serving.Leaf))
}

// has is which CAs of a cast the caBundle has.
func (r *rotating) has(c cast) string {
	var names []string
	for name, one := range c {
		if bytes.Contains(r.CABundle(), certPEM(one.cert)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// A leaf of another CA is served once every caBundle has had that CA for a while.
func TestFilesWaitForTheCABundle(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"old": 0, "new": 0, "newest": 0})
	now := start.Add(day)
	first, second := newPair(t, c["old"], now, "127.0.0.1").with(c["old"]), newPair(t, c["new"], now, "127.0.0.1").with(c["new"])
	oldCA, newCA := certPEM(c["old"].cert), certPEM(c["new"].cert)
	both := slices.Concat(oldCA, newCA)
	wait := (&FilesConfig{Overlap: testOverlap}).propagation()

	t.Run("Leads", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.Registered([][]byte{oldCA, oldCA}, false)
		r.replaceFiles(second)
		if got := r.has(c); got != "new,old" {
			t.Errorf("the caBundle has %s, want both CAs before a leaf of the new one is served", got)
		}
		if r.after(time.Hour, second) {
			t.Error("a leaf is served that no caller accepts")
		}
		r.Registered([][]byte{both, oldCA}, false)
		if r.after(time.Hour, second) {
			t.Error("a leaf is served that the callers of one webhook do not accept")
		}
		r.Registered([][]byte{both, both}, false)
		if r.after(wait-time.Second, second) {
			t.Error("a leaf is served that not every kube-apiserver knows to accept")
		}
		if !r.after(time.Second, second) {
			t.Error("the previous leaf is still served, though callers accept the new one")
		}
		if r.after(testOverlap-time.Second, second); r.has(c) != "new,old" {
			t.Error("the previous CA is gone, and another replica may still serve with a leaf of it")
		}
		if r.after(time.Second, second); r.has(c) != "new" {
			t.Errorf("the caBundle has %s in the end, want the new CA alone", r.has(c))
		}
	})
	t.Run("ChangedTwice", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.Registered([][]byte{oldCA, oldCA}, false)
		r.replaceFiles(second)
		r.replaceFiles(newPair(t, c["newest"], now, "127.0.0.1").with(c["newest"]))
		if got := r.has(c); got != "new,newest,old" {
			t.Errorf("the caBundle has %s, want also the CA in between: another replica may serve with a leaf of it", got)
		}
		if r.after(testOverlap, second); r.has(c) != "newest,old" {
			t.Errorf("the caBundle has %s after the overlap, want the CAs of the served and of the newest files", r.has(c))
		}
	})
	t.Run("NothingRegistered", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.Registered(nil, false)
		r.replaceFiles(second)
		if !r.after(wait, second) {
			t.Error("no call can fail, and the previous leaf is still served")
		}
	})
	t.Run("Expired", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.Registered([][]byte{oldCA}, false)
		r.clock.Step(30*day - time.Hour)
		late := newPair(t, c["new"], r.clock.Now(), "127.0.0.1").with(c["new"])
		if r.replaceFiles(late); r.after(0, late) {
			t.Error("a leaf is served that no caller accepts")
		}
		if !r.after(time.Hour+time.Second, late) || r.Ready() != nil {
			t.Errorf("an expired leaf is served though there is a new one: %v", r.Ready())
		}
	})
	t.Run("SameCA", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.Registered([][]byte{oldCA}, false)
		renewed := newPair(t, c["old"], now.Add(time.Minute), "127.0.0.1").with(c["old"])
		r.clock.Step(time.Hour)
		if r.replaceFiles(renewed); !r.after(0, renewed) {
			t.Error("a leaf of the CA that callers have waits")
		}
	})
	t.Run("Unregistered", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.config.NeedsCA = false
		if r.replaceFiles(second); !r.after(0, second) || r.has(c) != "new" {
			t.Error("a leaf waits for caBundles that are not registered")
		}
	})
}

// A replica with the previous files that begins to lead keeps the CA that the leader before it
// has registered, whose leaves others serve.
func TestFilesKeepWhatIsInherited(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"old": 0, "new": 0, "rogue": 0})
	now := start.Add(day)
	r := newRotating(t, newPair(t, c["old"], now, "127.0.0.1").with(c["old"]), now)
	both := slices.Concat(certPEM(c["new"].cert), certPEM(c["old"].cert))
	r.Registered([][]byte{both, both}, true)
	if r.step(); r.has(c) != "new,old" {
		t.Errorf("the caBundle has %s, want what is registered too", r.has(c))
	}
	r.Registered([][]byte{slices.Concat(both, certPEM(c["rogue"].cert))}, false)
	if r.step(); r.has(c) != "new,old" {
		t.Errorf("the caBundle has %s: what comes under this leader is not inherited", r.has(c))
	}
	r.clock.Step(testOverlap)
	if r.step(); r.has(c) != "old" {
		t.Errorf("the caBundle has %s after the overlap, want the CA of the files alone", r.has(c))
	}
}
