// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"

	"sa-controller-manager/test/backends/vault"
)

// TestConforms runs the suite of every signer on keys that are made where they stay.
func TestConforms(t *testing.T) {
	t.Parallel()
	hsm, bao, cloud := newToken(t), newVault(t), newKMS(t)
	bao.Namespace = "team-a"
	kinds := []string{"P-256", "P-384", "P-521", "RSA-2048", "RSA-3072"} // it takes long to make RSA-4096
	for name, keeper := range map[string]func(t *testing.T, name, algorithm string) (uri string){
		"PKCS11": hsm.make,
		"Transit": func(t *testing.T, name, algorithm string) string {
			t.Helper()
			return makeTransit(t, bao, name, algorithm) + "&namespace=team-a"
		},
		"AWSKMS": cloud.make,
	} {
		keys := t.TempDir()
		for _, kind := range kinds {
			key := strings.ToLower(kind)
			nameKey(t, keys, key, keeper(t, key, kind), kind)
		}
		signer := serve(t, keys, pin, vault.Token, awsSecret)
		for _, kind := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				signertest.Run(t, func(t *testing.T) signertest.Subject {
					remote := signer.connect(t, strings.ToLower(kind))
					return signertest.Subject{
						Signer: remote, Keys: remote, Styles: []signing.HeaderStyle{signing.JWTHeader},
						Secret: []string{pin, vault.Token, awsSecret},
					}
				})
			})
		}
	}
}

// TestKeysDirIsFollowed wants files that come and go to take effect without a restart, and a bad
// one to change nothing.
func TestKeysDirIsFollowed(t *testing.T) {
	t.Parallel()
	hsm, keys := newToken(t), t.TempDir()
	signer := serve(t, keys, pin)
	for _, name := range []string{"first", "second"} {
		nameKey(t, keys, name, hsm.make(t, name, "P-256"), "P-256")
		if _, err := signer.connect(t, name).Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(keys, "first.yaml"), "uri: nonsense\n")
	eventually(t, "the error", func() error {
		if !strings.Contains(signer.notServed(t), "key first: algorithm") || !strings.Contains(signer.Logs(), "key first: algorithm") {
			return errors.New("it is not in the log and for the probe")
		}
		return nil
	})
	if _, err := signer.connect(t, "first").Fetch(t.Context()); err != nil {
		t.Errorf("a bad file has ended the key that it replaces: %v", err)
	}
	testutil.Must(t, os.Remove(filepath.Join(keys, "second.yaml")))
	eventually(t, "the end of the socket", func() error {
		if _, err := os.Lstat(filepath.Join(signer.sockets, "second.sock")); !os.IsNotExist(err) {
			return fmt.Errorf("the socket is there: %v", err)
		}
		return nil
	})
}

// TestOneIsAwayAtStart: the other key signs, and the one whose engine was away is served later.
func TestOneIsAwayAtStart(t *testing.T) {
	t.Parallel()
	hsm, bao, keys := newToken(t), newVault(t), t.TempDir()
	nameKey(t, keys, "away", makeTransit(t, bao, "away", "P-256"), "P-256")
	nameKey(t, keys, "here", hsm.make(t, "here", "P-256"), "P-256")
	bao.Break(vault.Fault{Status: http.StatusServiceUnavailable})
	signer := serve(t, keys, pin)
	client, pinned := signer.pin(t, "here")
	if _, _, err := client.Sign(t.Context(), "here", pinned, signertest.Payload(0)); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(signer.sockets, "away.sock")); !os.IsNotExist(err) {
		t.Errorf("the key whose engine is away has a socket: %v", err)
	}
	bao.Heal()
	if _, err := signer.connect(t, "away").Fetch(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRefusedPIN wants a wrong PIN to cost one attempt, however often its file is read and the process restarts, and a
// corrected file to be enough.
func TestRefusedPIN(t *testing.T) {
	t.Parallel()
	hsm, other, keys, sockets := newToken(t), newToken(t), t.TempDir(), t.TempDir()
	library, attempts := counting(t, "")
	wrong := map[string]string{} // by key
	for _, key := range []string{"one", "two"} {
		wrong[key] = write(t, filepath.Join(t.TempDir(), "pin"), "wrong-"+key)
		nameKey(t, keys, key, strings.NewReplacer(module, library, hsm.pinFile, wrong[key]).Replace(hsm.make(t, key, "P-256")), "P-256")
	}
	// A key that is added and served shows that the files of the others were read once more.
	served := func(s *signer, name string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.connect(t, name).Fetch(ctx); err != nil {
			t.Fatal(err)
		}
	}
	read := func(s *signer, names ...string) {
		t.Helper()
		for _, name := range names {
			nameKey(t, keys, name, strings.Replace(other.make(t, name, "P-256"), module, library, 1), "P-256")
			served(s, name)
		}
	}
	signer := serveOn(t, keys, sockets, pin, "wrong-")
	// SoftHSM may fail to open its token on a busy machine, which is tried again.
	eventually(t, "both keys in the file for the probe", func() error {
		text := signer.notServed(t)
		for _, file := range wrong {
			if !strings.Contains(text, "the token refuses the PIN in "+file) {
				return errors.New(text)
			}
		}
		return nil
	})
	read(signer, "a", "b", "c")
	has(t, attempts, 2)
	testutil.Get(signer.Stop(30 * time.Second))(t)
	signer = serveOn(t, keys, sockets, pin, "wrong-")
	read(signer, "d", "e")
	has(t, attempts, 2)
	write(t, wrong["one"], pin)
	served(signer, "one")
	has(t, attempts, 2)
	eventually(t, "key two alone in the file for the probe", func() error {
		if text := signer.notServed(t); strings.Contains(text, "key one ") || !strings.Contains(text, "key two ") {
			return errors.New(text)
		}
		return nil
	})
}

// TestMoveToHSM moves the key of a cluster from a file to an HSM that has a spare, as docs/backends.md has it: that is an
// end state without a finding or an alert. Then the HSM is gone for good, and a rollback, the way that costs least, needs
// nothing of it.
func TestMoveToHSM(t *testing.T) {
	w := newWorld(t, "--algorithm=P-256")
	w.signs(t)
	hsm, kubeconfig := newToken(t), "--kubeconfig="+w.cluster.Kubeconfig()
	for _, name := range []string{"hsm", "spare"} {
		nameKey(t, w.path("keys"), name, hsm.make(t, name, "P-256"), "P-256")
	}
	eventually(t, "the key of the HSM as the next one", func() error { return w.keys(t.Context(), "next", "--key=kep740:hsm", kubeconfig) })
	eventually(t, "the rotation, once the spare key has its socket", func() error {
		return w.keys(t.Context(), "rotate", "--wait", "--next-key=kep740:spare", "--cache-age=0s", kubeconfig)
	})
	w.signsWithAnotherKey(t)
	eventually(t, "a key ring without a finding", func() error {
		metrics, err := w.manager.Metrics(t.Context())
		if err != nil {
			return err
		}
		// SACMBackendAway and SACMNoNextKey compare these.
		if up, next := metrics.Sum("sacm_backend_up", nil), metrics.Sum("sacm_key_ring_next_key", nil); up != 2 || next != 1 {
			return fmt.Errorf("%v signers are up, want 2; %v next keys, want 1", up, next)
		}
		return w.keys(t.Context(), "list", kubeconfig)
	})
	w.accepted(t)

	w.killHelper(t)
	eventually(t, "the rollback", func() error { return w.keys(t.Context(), "rollback", kubeconfig) })
	w.signsWithAnotherKey(t)
	w.accepted(t)
	if first, last := w.tokens[0].KeyID, w.tokens[len(w.tokens)-1].KeyID; first != last {
		t.Errorf("key %s signs, want the previous one, %s", last, first)
	}
}

// signsWithAnotherKey awaits a token of another key than that of the last one.
func (w *world) signsWithAnotherKey(t *testing.T) {
	t.Helper()
	previous := w.tokens[len(w.tokens)-1].KeyID
	eventually(t, "a token of the new key", func() error {
		w.signs(t)
		if w.tokens[len(w.tokens)-1].KeyID == previous {
			return errors.New("the previous key signs")
		}
		return nil
	})
}
