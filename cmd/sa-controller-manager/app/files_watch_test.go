// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
	"sa-controller-manager/signing/testkeys"
)

// sink sends the Events of its channel.
type sink chan string

func (s sink) Event(regarding runtime.Object, eventType, reason, note string) {
	s <- fmt.Sprintf("%s: %s %s: %s", regarding.(*corev1.ObjectReference).Name, eventType, reason, note)
}

// following are watched files with a short poll interval, and the receivers of their changes.
type following struct {
	*files
	ring     *signing.Keyring
	signing  chan string // IDs of new private keys
	bundles  chan string // new root CAs
	events   sink
	registry metrics.KubeRegistry
	stop     func()
}

func mustOpen[T any](t *testing.T, path string, parse func([]byte) (T, error)) *reload.File[T] {
	t.Helper()
	return testutil.Get(reload.Open(path, parse, reload.Options{Poll: 20 * time.Millisecond, Settle: 5 * time.Millisecond}))(t)
}

func keyFile(t *testing.T, path string) (options.KeyStore, signing.Store) {
	t.Helper()
	store := testutil.Get(reload.OpenKeyFile(path, reload.Options{Poll: 20 * time.Millisecond, Settle: 5 * time.Millisecond}))(t)
	return options.KeyStore{Flag: options.PrivateKeyFileFlag, Path: path}, store
}

func startFollowing(t *testing.T) *following {
	t.Helper()
	f := &following{
		files: &files{
			verifyKeys: []*reload.File[verifyKeys]{
				mustOpen(t, testutil.WriteFile(t, "one.pem", testkeys.P384()), parseVerifyKeys),
				mustOpen(t, testutil.WriteFile(t, "two.pem", testkeys.P521()), parseVerifyKeys),
			},
			rootCA: mustOpen(t, testutil.WriteFile(t, "ca.crt", certificatePEM(t)), rootca.ParseBundle),
		},
		signing: make(chan string, 10), bundles: make(chan string, 10), events: make(sink, 10), registry: metrics.NewKubeRegistry(),
	}
	f.reloads = newReloads(f.registry.MustRegister)
	f.keys, f.store = keyFile(t, testutil.WriteFile(t, "sa.key", testkeys.P256()))
	f.process = &corev1.ObjectReference{Kind: "Lease", Name: "sa-controller-manager"}
	f.recorder = events.NewRecorderTo(f.events)
	f.ring = signing.NewKeyring(f.store.Load(), f.publicKeys()...)
	f.ring.Changed.Subscribe(func(ring *signing.Ring) { f.signing <- ring.ActiveID() })
	f.followAll(f.ring, func(bundle *rootca.Bundle) { f.bundles <- string(bundle.PEM()) })
	for _, gauge := range f.refusedGauges() {
		f.registry.RawMustRegister(gauge)
	}

	f.stop = testutil.Start(t, f.watch)
	return f
}

// series returns the metrics as Prometheus scrapes them.
func (f *following) series() []string { return testutil.Series(f.registry, "") }

// replace replaces the content of a file by a rename.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	testutil.Must(t, os.Rename(testutil.WriteFile(t, "new", content), path))
}

func receive(t *testing.T, what string, from <-chan string) string {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(10 * time.Second):
		t.Fatalf("no %s has arrived", what)
		return ""
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true,
		func(context.Context) (bool, error) { return done(), nil })
	testutil.Require(t, err == nil, "await %s: %v", what, err)
}

func TestWatchPassesChangesOn(t *testing.T) {
	t.Parallel()
	f := startFollowing(t)
	replace(t, f.keys.Path, testkeys.P256Other())
	const said = "the file has key %s now, which signs after a restart"
	await(t, "a word about the changed key file", func() bool {
		return f.store.Status() == signing.StoreStatus{Detail: fmt.Sprintf(said, keyID(testkeys.P256Other()))}
	})

	bundle := certificatePEM(t)
	replace(t, f.rootCA.Path(), bundle)
	testutil.Check(t, "root CA", string(bundle), receive(t, "root CA", f.bundles))

	// A changed file replaces its own keys and leaves those of the other file.
	replace(t, f.verifyKeys[0].Path(), slices.Concat(testkeys.RSA2048(), testkeys.RSA2048Other()))
	want := []string{keyID(testkeys.P256()), keyID(testkeys.RSA2048()), keyID(testkeys.RSA2048Other()), keyID(testkeys.P521())}
	await(t, "all keys in the ring", func() bool { return len(f.ring.Keys().All()) == len(want) })
	testutil.Check(t, "keys in the ring", want, keyIDs(f.ring.Keys().All()))

	f.stop()
	id := f.store.Load().ActiveID()
	testutil.Expect(t, len(f.signing) == 0 && id == keyID(testkeys.P256()), "key %s of the changed file signs without a restart", id)
	testutil.Check(t, "metrics", []string{
		`sacm_file_refused{flag="root-ca-file"} 0`, `sacm_file_refused{flag="service-account-key-file"} 0`,
		`sacm_file_refused{flag="service-account-private-key-file"} 0`, `sacm_file_reloads_total{flag="root-ca-file",result="accepted"} 1`,
		`sacm_file_reloads_total{flag="service-account-key-file",result="accepted"} 1`,
	}, f.series())
	if len(f.events) > 0 {
		t.Errorf("an Event was recorded about a success: %s", <-f.events)
	}
}

func TestWatchKeepsThePreviousContent(t *testing.T) {
	t.Parallel()
	f := startFollowing(t)
	const event = "sa-controller-manager: Warning FileReloadRefused: "
	const kept = "; the previous content stays in use"
	for _, bad := range []struct {
		flag, path string
		content    []byte
		want       string
	}{
		{"--service-account-private-key-file", f.keys.Path, testkeys.Ed25519(), "Ed25519"},
		{"--service-account-key-file", f.verifyKeys[1].Path(), []byte("hello"), "accepted is"},
		{"--root-ca-file", f.rootCA.Path(), testkeys.P256(), "at least one certificate"},
	} {
		replace(t, bad.path, bad.content)
		got := receive(t, "Event", f.events)
		if !strings.HasPrefix(got, event+bad.flag+": "+bad.path+": ") || !strings.Contains(got, bad.want) || !strings.HasSuffix(got, kept) {
			t.Errorf("got the Event %q, want one about %s and %s that says %q", got, bad.flag, bad.path, bad.want)
		}
	}
	testutil.Check(t, "metrics", []string{
		`sacm_file_refused{flag="root-ca-file"} 1`, `sacm_file_refused{flag="service-account-key-file"} 1`,
		`sacm_file_refused{flag="service-account-private-key-file"} 1`, `sacm_file_reloads_total{flag="root-ca-file",result="refused"} 1`,
		`sacm_file_reloads_total{flag="service-account-key-file",result="refused"} 1`,
		`sacm_file_reloads_total{flag="service-account-private-key-file",result="refused"} 1`,
	}, f.series())
	// The previous content is back, which is not reported: see reload.File.
	replace(t, f.verifyKeys[1].Path(), testkeys.P521())
	const none = `sacm_file_refused{flag="service-account-key-file"} 0`
	await(t, none, func() bool { return slices.Contains(f.series(), none) })
	f.stop()
	if got, want := f.store.Load().ActiveID(), keyID(testkeys.P256()); got != want || len(f.signing) > 0 {
		t.Errorf("the private key is %s and %d changes were reported, want %s and none", got, len(f.signing), want)
	}
	want := []string{keyID(testkeys.P256()), keyID(testkeys.P384()), keyID(testkeys.P521())}
	testutil.Check(t, "keys in the ring", want, keyIDs(f.ring.Keys().All()))
	testutil.Expect(t, len(f.bundles) == 0, "the root CA was replaced")
}

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
			tls: rest.TLSClientConfig{CertData: testkeys.P256()},
			err: "client-certificate-data of the kubeconfig: want PEM of a certificate",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := openClientCertificate(&rest.Config{TLSClientConfig: tc.tls})
			if err != nil || tc.err != "" {
				testutil.Expect(t, err != nil && err.Error() == tc.err, "error %v, want %q", err, tc.err)
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
			testutil.Expect(t, c.notAfter().Sub(end).Abs() <= time.Minute, "it ends at %s, want %s", c.notAfter(), end)
			at := c.notAfter().UTC().Format(time.RFC3339)
			testutil.Check(t, "status before", "expires at "+at, c.status(c.notAfter().Add(-time.Second)))
			testutil.Check(t, "status then", "expired at "+at, c.status(c.notAfter()))
		})
	}
}
