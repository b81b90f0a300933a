// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/ringfile"
	"sa-controller-manager/signing/rotation"
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
	key := newKey{signer: "kep740:hsm"}
	for _, want := range []bool{false, true} {
		if resumed, err := start(t.Context(), w.Operator, key); err != nil || resumed != want {
			t.Fatalf("start: resumed %t, want %t: %v", resumed, want, err)
		}
	}
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
	if _, err := start(t.Context(), w.Operator, key); err == nil || !strings.Contains(err.Error(), "is in the ring already, as active") {
		t.Errorf("the same key again: %v", err)
	}
	foreign.Set(func(b *signertest.Behaviour) {
		b.Listed[0].KeyId, b.Header = "new", strings.ReplaceAll(b.Header, hsmID, "new")
	})
	if _, err := start(t.Context(), w.Operator, key); err == nil || !strings.Contains(err.Error(), "kep740:hsm is the signer of key "+hsmID) {
		t.Errorf("another key behind the name: %v", err)
	}
	if err := w.Export(io.Discard, Export{Private: true}); err == nil || !strings.Contains(err.Error(), "rotate to a key in a file") {
		t.Errorf("export: %v", err)
	}
	if err := (&commandOptions{ring: w.File.Path()}).printPublicKeys(nil); err == nil || !strings.Contains(err.Error(), "would not find it in a key file") {
		t.Errorf("list -o pem: %v", err)
	}
	copied := ringfile.At(filepath.Join(t.TempDir(), "ring.json"))
	if _, err := copied.Import(w.File); err != nil {
		t.Errorf("import: %v", err)
	}
	foreign.Stop() // the way back needs no signer
	w.must(w.Rollback(t.Context(), false))
	if state := w.state(); state.Active().ID != rsaID || state.Phase() != rotation.RolledBack {
		t.Errorf("%s signs in phase %s", state.Active().ID, state.Phase())
	}
	if _, err := w.Revoke(t.Context(), hsmID, nil); err != nil {
		t.Errorf("revoke: %v", err)
	}
}

func TestPinRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		does func(*signertest.Behaviour)
		key  newKey
		want string
	}{
		"good":               {does: func(*signertest.Behaviour) {}},
		"no legacy tokens":   {does: func(b *signertest.Behaviour) { b.NoLegacy = true }, want: "refuses the tokens of Secrets, which the token controller signs"},
		"bound tokens only":  {does: func(b *signertest.Behaviour) { b.NoLegacy = true }, key: newKey{boundOnly: true}},
		"short maximum":      {does: func(b *signertest.Behaviour) { b.MaxSeconds = 3600 }, want: "signs tokens for at most 1h0m0s, and kube-apiserver asks for up to 48h0m0s"},
		"lists another key":  {does: func(b *signertest.Behaviour) { b.Listed[0].KeyId = "other" }, want: "which is not pinned"},
		"signs with another": {does: func(b *signertest.Behaviour) { b.PEM = testkeys.P256Other() }, want: "does not verify with the pinned public half"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.withSigner().Set(tc.does)
			tc.key.signer = "kep740:hsm"
			_, err := tc.key.pair(t.Context(), w.Operator)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
