// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package extras

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/keyring/remote"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens/policy"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// newOptions returns the defaults without ports.
func newOptions() *options.Options {
	o := options.New()
	o.Webhook.Port = 0
	return o
}

// start builds all parts. They run until the test ends, without an API server.
func start(t *testing.T, o *options.Options, plugged app.Extras) (*app.Manager, error) {
	t.Helper()
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	m, err := app.New(t.Context(), o, config, metrics.NewKubeRegistry(), plugged)
	if err == nil {
		testutil.Start(t, m.Run)
	}
	return m, err
}

// TestPlainKeyFile: with a key file no extra is in the way of a token, and no ring is published. One counts findings.
func TestPlainKeyFile(t *testing.T) {
	t.Parallel()
	o := newOptions()
	o.Keys.PrivateKeyFile = testutil.WriteFile(t, "sa.key", testkeys.P256())
	testutil.Expect(t, New(o).OpenKeys == nil, "an extra opens the key file")
	e := &extras{}
	m := testutil.Get(start(t, o, app.Extras{Parts: e.parts}))(t)
	testutil.Require(t, m.Keyring != nil, "the token controller has no keys")
	for _, part := range e.parts() {
		part.Host, part.Informers = m.Host, informers.New(m.Client, 0)
		part.Registry = metrics.NewKubeRegistry() // each metric is in the first one already
		testutil.Must(t, part.Build(&part))
		testutil.Expect(t, (part.Run != nil) == (part.Name == "token-findings") && part.Check == nil, "%s runs", part.Name)
	}
}

func TestKeySocketsFlag(t *testing.T) {
	t.Parallel()
	testutil.Check(t, "flag", remote.SocketsFlag, options.KeySocketsFlag)
}

// TestStartWithARemoteKey: only a process that refuses one kind of tokens ends a start. One that is away
// does not, as kube-apiserver needs the verification keys.
func TestStartWithARemoteKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		does        func(*signertest.Foreign)
		controllers []string
		noSocket    bool
		want        string
	}{
		"Good": {does: func(*signertest.Foreign) {}},
		"BoundOnly": {does: noLegacy, want: "--service-account-key-ring: kep740:hsm refuses to sign tokens of Secrets " +
			"with the active key hsm/1: rotate to another key, " +
			"or disable the token controller with --controllers=*,-serviceaccount-token-controller"},
		"BoundOnlyByIntent": {does: noLegacy, controllers: []string{"*", "-serviceaccount-token-controller"}},
		"Away":              {does: (*signertest.Foreign).Stop},
		"NoSocketLine":      {does: func(*signertest.Foreign) {}, noSocket: true},
		"RefusesAll": {
			does: func(f *signertest.Foreign) { f.Set(func(b *signertest.Behaviour) { b.Fails = codes.PermissionDenied }) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			foreign := signertest.ServeForeign(t, dir+"/hsm.sock", "hsm/1", testkeys.P256())
			file := ring.At(filepath.Join(dir, "keys", "ring.json"))
			key := testkeys.Parse(testkeys.P256()).Public()
			key.ID = "hsm/1"
			testutil.Must(t, file.Init(signing.RemoteKey("hsm", key, nil), nil, nil, time.Now()))
			o := newOptions()
			if tc.controllers != nil {
				o.Generic.Controllers = tc.controllers
			}
			o.Keys.KeyRing = file.Path()
			o.Keys.KeySockets = testutil.WriteFile(t, "sockets.yaml", []byte("schemaVersion: 1\nsockets:\n  hsm: "+dir+"/hsm.sock\n"))
			if tc.noSocket {
				o.Keys.KeySockets = ""
			}
			tc.does(foreign)
			e := &extras{}
			m, err := start(t, o, app.Extras{OpenKeys: e.openRing, Parts: e.parts})
			t.Cleanup(e.signers.Close)
			testutil.Expect(t, (tc.want != "" || err == nil) && (tc.want == "" || err != nil && strings.Contains(err.Error(), tc.want)),
				"error %v, want %q", err, tc.want)
			if tc.noSocket {
				const want = "is away, its keys verify: the file of sockets has none for this key"
				testutil.CheckContains(t, "status", want, e.signers.Status(m.Keyring.Ring()))
			}
		})
	}
}

func noLegacy(f *signertest.Foreign) { f.Set(func(b *signertest.Behaviour) { b.NoLegacy = true }) }

// TestOpenKeyRing is about the start of the manager.
func TestOpenKeyRing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ring.json")
	o, e := newOptions(), &extras{}
	o.Keys.KeyRing = path
	plugged := app.Extras{OpenKeys: e.openRing, Parts: e.parts}
	_, err := start(t, o, plugged)
	testutil.Expect(t, err != nil && strings.HasPrefix(err.Error(), "--service-account-key-ring: there is no key ring: read "+path),
		"a file that is not there: %v", err)
	testutil.Must(t, ring.At(path).Init(testkeys.Parse(testkeys.P256()), nil, nil, time.Now()))
	m := testutil.Get(start(t, o, plugged))(t)
	if got := m.Keyring.Ring(); got.ActiveID() != "LswSX_8-TRzY3vSJg2wtCj6KrsbIeMNUDdtbd2GtVO4" || e.store.State().Generation != 1 {
		t.Errorf("%v signs, generation %d", got.Active(), e.store.State().Generation)
	}
}

func TestSignerPolicy(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, tc := range map[string]struct {
		reason        string
		flag, longest time.Duration
	}{
		"Lowered": {"kube-apiserver asks for the previous maximum, and for a year for Pods, until it is restarted", 24 * time.Hour, year},
		"Default": {"", options.New().ExternalSigner.MaxTokenExpiration, year},
		"Longer":  {"the longer lifetime was announced", 2 * year, 2 * year},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options.New()
			o.Keys.Issuers, o.ExternalSigner.MaxTokenExpiration = []string{signertest.Issuer}, tc.flag
			allowed := testutil.Get(signerPolicy(o))(t)
			testutil.CheckError(t, tc.reason, "", allowed.Check(signertest.PayloadFor(tc.longest)))
			err := allowed.Check(signertest.PayloadFor(tc.longest + time.Second))
			if refusal, ok := errors.AsType[*policy.RefusalError](err); !ok || refusal.Reason() != policy.ReasonLifetime {
				t.Errorf("a token that lives a second longer: %v, want reason %q", err, policy.ReasonLifetime)
			}
		})
	}
}
