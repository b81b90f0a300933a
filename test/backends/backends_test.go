// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/test/backends/vault"
)

// TestConforms runs the suite of every signer on keys that are created where they stay.
func TestConforms(t *testing.T) {
	t.Parallel()
	hsm, bao, cloud := newToken(t), newVault(t), newKMS(t)
	bao.Namespace = "team-a"
	kinds := []string{"P-256", "P-384", "P-521", "RSA-2048", "RSA-3072"} // it takes long to make RSA-4096
	for name, uri := range map[string]func(name string) string{
		"PKCS11":  hsm.uri,
		"Transit": func(name string) string { return bao.URI(name) + "&namespace=team-a" },
		"AWSKMS":  cloud.uri,
	} {
		keys := t.TempDir()
		for _, kind := range kinds {
			key := strings.ToLower(kind)
			createKey(t, keys, key, uri(key), kind)
		}
		signer := serve(t, keys, pin, vault.Token, awsSecret)
		for _, kind := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				signertest.Run(t, func(t *testing.T) signertest.Subject {
					remote := signer.connect(t, strings.ToLower(kind))
					return signertest.Subject{
						Signer: remote, Keys: remote, Styles: []signing.HeaderStyle{signing.JWTHeader}, Secret: []string{pin, vault.Token, awsSecret},
					}
				})
			})
		}
	}
}

// TestKeysDirIsFollowed wants files that come and go to take effect without a restart, and a bad
// one to change nothing. A PIN that a token refuses is tried once, and not for every look at its file.
func TestKeysDirIsFollowed(t *testing.T) {
	t.Parallel()
	hsm, other, keys := newToken(t), newToken(t), t.TempDir()
	signer := serve(t, keys, pin)
	for _, name := range []string{"first", "second"} {
		createKey(t, keys, name, hsm.uri(name), "P-256")
		if _, err := signer.connect(t, name).Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(keys, "first.yaml"), "uri: nonsense\n")
	wrong := write(t, filepath.Join(t.TempDir(), "wrong"), "0000")
	write(t, filepath.Join(keys, "locked-out.yaml"),
		fmt.Sprintf("uri: %q\nalgorithm: P-256\n", strings.Replace(other.uri("mine"), other.pinFile, wrong, 1)))
	eventually(t, "the errors in the log", func() error {
		for _, want := range []string{"key first: algorithm", "want one of P-256", "the token refuses the PIN in " + wrong,
			wrong + ": it is not retried"} {
			if !strings.Contains(signer.Logs(), want) {
				return fmt.Errorf("no %q in:\n%s", want, signer.Logs())
			}
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
	createKey(t, keys, "away", bao.URI("away"), "P-256")
	createKey(t, keys, "here", hsm.uri("here"), "P-256")
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
