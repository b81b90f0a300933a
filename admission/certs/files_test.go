// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	leaf := testutil.Get(issuer.leaf(now, 30*day, hosts))(t)
	key := testutil.Get(pki.KeyPEM(leaf.PrivateKey.(crypto.Signer)))(t)
	return pair{cert: pki.CertPEM(leaf.Leaf), key: key}
}

// selfSigned is a pair whose certificate has signed itself, and is no CA.
func selfSigned(t *testing.T) pair {
	t.Helper()
	made, key, err := pki.Issue(&x509.Certificate{DNSNames: []string{"localhost"}, NotBefore: start, NotAfter: start.Add(30 * day)}, nil,
		nil)
	testutil.Must(t, err)
	encoded := testutil.Get(pki.KeyPEM(key))(t)
	return pair{cert: pki.CertPEM(made), key: encoded}
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
			reason: "the CA in the chain is what to register", pair: good.with(c["a"]), needsCA: true,
			hosts:  []string{"127.0.0.1", "localhost"},
			bundle: pki.CertPEM(c["a"].cert),
		},
		"no CA":            {reason: "who registers it by hand knows the CA", pair: good},
		"signed by itself": {reason: "it is its own CA", pair: own, needsCA: true, bundle: own.cert},
		"no CA to register": {
			pair: good, needsCA: true, wantErr: `tls.crt": it contains no CA to register with kube-apiserver: the file must end with the ` +
				`CA's certificate`,
		},
		"other key":  {pair: pair{good.cert, newPair(t, c["a"], now, "127.0.0.1").key}, wantErr: "private key does not match"},
		"rubbish":    {pair: pair{[]byte("rubbish"), good.key}, wantErr: "failed to find any PEM data"},
		"no names":   {pair: newPair(t, c["a"], now), wantErr: "no subject alternative name"},
		"other host": {pair: good, hosts: []string{"webhook.kube-system.svc"}, wantErr: "not webhook.kube-system.svc"},
		"expired": {
			reason: "the controllers of this process are needed all the same",
			pair:   newPair(t, c["a"], start.Add(-40*day), "127.0.0.1"), notYet: "certificate expired at",
		},
		"of tomorrow": {
			reason: "kube-apiserver refuses it, too", pair: newPair(t, c["a"], start.Add(2*day), "127.0.0.1"),
			notYet: "certificate is valid from",
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
	f.Subscribe(func([]byte) { changes <- struct{}{} })
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
	testutil.Expect(t, serves(second), "another pair is served than the new one")
}

// rotating is Files whose content a test changes, step by step.
type rotating struct {
	*Files
	t     *testing.T
	dir   string
	clock *clocktesting.FakeClock
}

func newRotating(t *testing.T, first pair, now time.Time) *rotating {
	t.Helper()
	r := &rotating{t: t, dir: t.TempDir(), clock: clocktesting.NewFakeClock(now)}
	config := FilesConfig{
		CertFile: writeFile(t, r.dir, "tls.crt", first.cert), KeyFile: writeFile(t, r.dir, "tls.key", first.key),
		NeedsCA: true, Clock: r.clock,
	}
	var err error
	r.Files, err = NewFiles(config)
	testutil.Must(t, err)
	return r
}

func (r *rotating) replaceFiles(p pair) {
	r.t.Helper()
	writeFile(r.t, r.dir, "tls.crt", p.cert)
	writeFile(r.t, r.dir, "tls.key", p.key)
	testutil.Must(r.t, r.pair.RunOnce(r.t.Context()))
	testutil.Must(r.t, r.load())
	r.step()
}

// TestFilesNameWhatTheyRefuse: readiness says which file is not used, why, and until when the present certificate lasts.
func TestFilesNameWhatTheyRefuse(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"a": 0})
	now := start.Add(day)
	first := newPair(t, c["a"], now, "127.0.0.1").with(c["a"])
	r := newRotating(t, first, now)
	note := func(p pair) string {
		writeFile(t, r.dir, "tls.crt", p.cert)
		writeFile(t, r.dir, "tls.key", p.key)
		testutil.Must(t, errors.Join(r.pair.RunOnce(t.Context()), r.sync(t.Context(), r.config.CertFile)))
		return r.Note()
	}
	refused := note(newPair(t, c["a"], start.Add(-40*day), "127.0.0.1").with(c["a"]))
	for _, want := range []string{r.config.CertFile, "expired", "the present certificate is valid until 2"} {
		testutil.CheckContains(t, "refused", want, refused)
	}
	testutil.Check(t, "what the file in order says", "", note(first))
}

// has is which CAs of a cast the caBundle has.
func (r *rotating) has(c cast) string {
	var names []string
	for name, one := range c {
		if bytes.Contains(r.CABundle(), pki.CertPEM(one.cert)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// A leaf of another CA is served once every caBundle has had that CA for a while.
func TestFilesWaitForTheCABundle(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"old": 0, "new": 0, "newest": 0, "rogue": 0})
	now := start.Add(day)
	files := map[string]pair{"renewed": newPair(t, c["old"], now.Add(time.Minute), "127.0.0.1").with(c["old"])}
	for name, ca := range c {
		files[name] = newPair(t, ca, now, "127.0.0.1").with(ca)
	}
	files["late"] = newPair(t, c["new"], now.Add(30*day-time.Hour), "127.0.0.1").with(c["new"])
	// registers has each webhook registered with some CAs.
	registers := func(inherited bool, caBundles ...string) func(*rotating) {
		return func(r *rotating) {
			var all [][]byte
			for _, names := range caBundles {
				var bundle []byte
				for name := range strings.SplitSeq(names, ",") {
					bundle = append(bundle, pki.CertPEM(c[name].cert)...)
				}
				all = append(all, bundle)
			}
			r.Registered(all, inherited)
		}
	}
	replaced := func(by ...string) func(*rotating) {
		return func(r *rotating) {
			for _, name := range by {
				r.replaceFiles(files[name])
			}
		}
	}
	type step struct {
		do          func(*rotating)
		after       time.Duration
		serves, has string // which files, and the caBundle which CAs
	}
	for name, tc := range map[string]struct {
		reason       string
		unregistered bool
		steps        []step
	}{
		"Leads": {reason: "neither a caller nor another replica meets a leaf that is not accepted", steps: []step{
			{do: registers(false, "old", "old"), serves: "old", has: "old"},
			{do: replaced("new"), after: time.Hour, serves: "old", has: "new,old"},
			{do: registers(false, "new,old", "old"), after: time.Hour, serves: "old", has: "new,old"},
			{do: registers(false, "new,old", "new,old"), after: propagation - time.Second, serves: "old", has: "new,old"},
			{after: time.Second, serves: "new", has: "new,old"},
			{after: filesOverlap - time.Second, serves: "new", has: "new,old"},
			{after: time.Second, serves: "new", has: "new"},
		}},
		"ChangedTwice": {reason: "another replica may serve with a leaf of the CA in between", steps: []step{
			{do: registers(false, "old", "old"), serves: "old", has: "old"},
			{do: replaced("new", "newest"), serves: "old", has: "new,newest,old"},
			{after: filesOverlap, serves: "old", has: "newest,old"},
		}},
		"NothingRegistered": {reason: "it is the one to prove when it is switched on again", steps: []step{
			{do: registers(false), serves: "old", has: "old"},
			{do: replaced("new"), after: propagation, serves: "old", has: "new,old"},
			{do: registers(false, "new,old"), after: propagation, serves: "new", has: "new,old"},
		}},
		"Expired": {reason: "a new leaf is better than an expired one", steps: []step{
			{do: registers(false, "old"), after: 30*day - time.Hour, serves: "old", has: "old"},
			{do: replaced("late"), serves: "old", has: "new,old"},
			{after: time.Hour + time.Second, serves: "late", has: "new,old"},
		}},
		"SameCA": {reason: "callers have it", steps: []step{
			{do: registers(false, "old"), after: time.Hour, serves: "old", has: "old"},
			{do: replaced("renewed"), serves: "renewed", has: "old"},
		}},
		"Unregistered": {reason: "no caBundle is to wait for", unregistered: true, steps: []step{
			{do: replaced("new"), serves: "new", has: "new,old"},
		}},
		"Inherited": {reason: "others serve with leaves of the CA that an earlier leader has registered", steps: []step{
			{do: registers(true, "new,old", "new,old"), serves: "old", has: "new,old"},
			{do: registers(false, "new,old,rogue"), serves: "old", has: "new,old"},
			{after: filesOverlap, serves: "old", has: "old"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRotating(t, files["old"], now)
			r.config.NeedsCA = !tc.unregistered
			for i, one := range tc.steps {
				if one.do != nil {
					one.do(r)
				}
				r.clock.Step(one.after)
				r.step()
				if served := pki.CertPEM(r.current.Load().serving.Leaf); !bytes.HasPrefix(files[one.serves].cert, served) ||
					r.has(c) != one.has {
					t.Errorf("%s: step %d: the caBundle has %s, want %s; is the leaf of the %s files: %t", tc.reason, i, r.has(c), one.has,
						one.serves, bytes.HasPrefix(files[one.serves].cert, served))
				}
				err := r.Ready()
				testutil.Expect(t, err == nil, "%s: step %d: %v", tc.reason, i, err)
			}
		})
	}
}

// The client CA of a running server is exchanged between two handshakes.
func TestClientCA(t *testing.T) {
	t.Parallel()
	now := time.Now()
	cas := []*authority{madeAt(t, now, day), madeAt(t, now, day)}
	dir := t.TempDir()
	_, err := NewClientCA(filepath.Join(dir, "ca.crt"))
	testutil.Expect(t, err != nil, "a client CA is read from a file that does not exist")
	file := writeFile(t, dir, "ca.crt", pki.CertPEM(cas[0].cert))
	c := testutil.Get(NewClientCA(file))(t)
	testutil.Start(t, c.Run)
	trusts := func(when string, want *authority) {
		t.Helper()
		config := testutil.Get(c.ConfigForClient(&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert})(nil))(t)
		pool := x509.NewCertPool()
		pool.AddCert(want.cert)
		testutil.Expect(t, config.ClientCAs.Equal(pool) && config.ClientAuth == tls.RequireAndVerifyClientCert,
			"%s: clients of another CA get in", when)
	}
	trusts("at first", cas[0])
	writeFile(t, dir, "ca.crt", []byte("rubbish"))
	testutil.Expect(t, c.content.RunOnce(t.Context()) != nil, "a damaged file is accepted")
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
