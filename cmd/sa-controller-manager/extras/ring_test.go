// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package extras

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
)

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
			"or turn off the token controller with --controllers=*,-serviceaccount-token-controller"},
		"BoundOnlyByIntent": {does: noLegacy, controllers: []string{"*", "-serviceaccount-token-controller"}},
		"Away":              {does: (*signertest.Foreign).Stop},
		"NoSocketLine":      {does: func(*signertest.Foreign) {}, noSocket: true},
		"RefusesAll":        {does: func(f *signertest.Foreign) { f.Set(func(b *signertest.Behaviour) { b.Fails = codes.PermissionDenied }) }},
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
			err := start(t, o, app.Extras{OpenKeys: e.openRing, Parts: e.parts})
			t.Cleanup(e.signers.Close)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if tc.noSocket {
				const want = "is away, its keys verify: --service-account-key-sockets has no socket for this key"
				testutil.CheckContains(t, "status", want, e.signers.Status(e.Keyring.Ring()))
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
	err := start(t, o, plugged)
	if err == nil || !strings.HasPrefix(err.Error(), "--service-account-key-ring: there is no key ring: read "+path) {
		t.Errorf("a file that is not there: %v", err)
	}
	testutil.Must(t, ring.At(path).Init(testkeys.Parse(testkeys.P256()), nil, nil, time.Now()))
	testutil.Must(t, start(t, o, plugged))
	if got := e.Keyring.Ring(); got.ActiveID() != "LswSX_8-TRzY3vSJg2wtCj6KrsbIeMNUDdtbd2GtVO4" || e.store.State().Generation != 1 {
		t.Errorf("%v signs, generation %d", got.Active(), e.store.State().Generation)
	}
}
