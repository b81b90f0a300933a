// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
)

const hsmID = "hsm/1:sa"

// withSigner gives the world a foreign signer kep740:hsm.
func (w *world) withSigner() *signertest.Foreign {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "hsm.sock")
	foreign := signertest.ServeForeign(w.t, path, hsmID, testkeys.P256())
	w.Signers = remote.NewClient(func() remote.Sockets { return remote.Sockets{"hsm": path} }, nil)
	w.t.Cleanup(w.Signers.Close)
	w.File = w.File.Signing(w.Signers.Sign)
	return foreign
}

// TestRotateToASigner goes from a file to a signer with a key ID of its own, back, and to a new file.
func TestRotateToASigner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	foreign := w.withSigner()
	start := func() error {
		_, err := w.Start(t.Context(), func(signing.PublicKey) bool { return false }, func(signing.PublicKey) (*signing.PrivateKey, error) {
			return w.Pin(t.Context(), "kep740:hsm", false)
		})
		return err
	}
	w.must(start())
	w.accepts = append(w.accepts, hsmID)
	w.clock.Step(time.Hour)
	w.must(w.Complete(t.Context(), ActivateOptions{}))
	active := w.state().Active()
	if active.ID != hsmID || active.Signer != "kep740:hsm" || active.PublicOnly || !active.Foreign() {
		t.Errorf("the active key is %+v", active)
	}
	data, err := os.ReadFile(w.File.Path())
	w.must(err)
	if bytes.Count(data, []byte("PRIVATE KEY")) != 2 || bytes.Contains(data, []byte(".sock")) {
		t.Error("the ring has more than the public half and the name of the signer") // begin and end of one PEM
	}
	if err := start(); err == nil || !strings.Contains(err.Error(), "is in the ring already, as active") {
		t.Errorf("the same key again: %v", err)
	}
	foreign.Set(func(b *signertest.Behaviour) {
		b.Listed[0].KeyId, b.Header = "new", strings.ReplaceAll(b.Header, hsmID, "new")
	})
	if err := start(); err == nil || !strings.Contains(err.Error(), "kep740:hsm is the signer of key "+hsmID) {
		t.Errorf("another key behind the name: %v", err)
	}
	copied := ring.At(filepath.Join(t.TempDir(), "ring.json"))
	if _, err := copied.Import(w.File); err != nil {
		t.Errorf("import: %v", err)
	}
	foreign.Stop() // the way back needs no signer
	w.must(w.Rollback(t.Context(), false))
	if state := w.state(); state.Active().ID != rsaID || state.Phase() != ring.RolledBack {
		t.Errorf("%s signs in phase %s", state.Active().ID, state.Phase())
	}
	revoked, err := w.Revoke(t.Context(), hsmID, nil)
	if err != nil || !strings.Contains(revoked[0].Destroy,
		"kep740:hsm has the private half still: destroy it there. With sa-kms-signer it is the object that uri in hsm.yaml") {
		t.Errorf("revoke: %v, %v", revoked, err)
	}
}

func TestPinRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		does      func(*signertest.Behaviour)
		boundOnly bool
		want      string
	}{
		"good": {does: func(*signertest.Behaviour) {}},
		"no legacy tokens": {
			does: func(b *signertest.Behaviour) { b.NoLegacy = true }, want: "refuses the tokens of Secrets, which the token controller signs",
		},
		"bound tokens only": {does: func(b *signertest.Behaviour) { b.NoLegacy = true }, boundOnly: true},
		"short maximum": {
			does: func(b *signertest.Behaviour) { b.MaxSeconds = 3600 },
			want: "signs tokens for at most 1h0m0s, and kube-apiserver asks for up to 48h0m0s",
		},
		"lists another key": {does: func(b *signertest.Behaviour) { b.Listed[0].KeyId = "other" }, want: "which is not pinned"},
		"signs with another": {
			does: func(b *signertest.Behaviour) { b.PEM = testkeys.P256Other() }, want: "does not verify with the pinned public half",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.withSigner().Set(tc.does)
			_, err := w.Pin(t.Context(), "kep740:hsm", tc.boundOnly)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
