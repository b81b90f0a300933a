// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/vault/sdk/logical"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// TestBackendGoesAway wants an answer within two seconds while the backend is away, and signatures
// again after it is back, without a restart.
func TestBackendGoesAway(t *testing.T) {
	t.Parallel()
	hsm, bao := newToken(t), newVault(t)
	kill := startRemote(t)
	cases := map[string]struct {
		uri        string
		gone, back func() error
	}{
		"hsm": {strings.Replace(hsm.uri("hsm"), module, client(t), 1), func() error { return kill() },
			func() error { kill = startRemote(t); return nil }},
		"sealed": {bao.URI("sealed"), func() error { bao.Break(vault.Fault{Status: http.StatusServiceUnavailable}); return nil },
			func() error { bao.Heal(); return nil }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			keys := t.TempDir()
			createKey(t, keys, name, tc.uri, "P-256")
			remote := serve(t, keys, pin, vault.Token).connect(t, name)
			sign := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, _, err := remote.Sign(ctx, signing.JWTHeader, signertest.Payload(0))
				return err
			}
			if err := sign(); err != nil {
				t.Fatal(err)
			}
			if err := tc.gone(); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if err := sign(); status.Code(err) != codes.Internal && status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("while it is away: %v", err)
			}
			if took := time.Since(begun); took > 4*time.Second {
				t.Errorf("the answer took %v", took)
			}
			if err := tc.back(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "a signature", sign)
		})
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
	write(t, filepath.Join(keys, "locked-out.yaml"), fmt.Sprintf("uri: %q\nalgorithm: P-256\n", strings.Replace(other.uri("mine"), other.pinFile, wrong, 1)))
	eventually(t, "the errors in the log", func() error {
		for _, want := range []string{"key first: algorithm", "want one of P-256", "the token refuses the PIN in " + wrong, wrong + ", which is not tried again"} {
			if !strings.Contains(signer.log.String(), want) {
				return fmt.Errorf("no %q in:\n%s", want, signer.log.String())
			}
		}
		return nil
	})
	if _, err := signer.connect(t, "first").Fetch(t.Context()); err != nil {
		t.Errorf("a bad file has ended the key that it replaces: %v", err)
	}
	if err := os.Remove(filepath.Join(keys, "second.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the socket", func() error {
		if _, err := os.Lstat(filepath.Join(signer.sockets, "second.sock")); !os.IsNotExist(err) {
			return fmt.Errorf("the socket is there: %v", err)
		}
		return nil
	})
}

// TestReplacedKey wants nothing of another key that has come behind the name while it is served.
func TestReplacedKey(t *testing.T) {
	t.Parallel()
	hsm, bao := newToken(t), newVault(t)
	for name, tc := range map[string]struct {
		uri     string
		replace func(t *testing.T)
	}{
		"PKCS11": {hsm.uri("mine"), func(t *testing.T) {
			for _, kind := range []string{"privkey", "pubkey"} {
				hsm.tool(t, "--delete-object", "--type", kind, "--label", "mine")
			}
			createKey(t, t.TempDir(), "mine", hsm.uri("mine"), "P-256")
		}},
		"Transit": {bao.URI("mine"), func(t *testing.T) {
			call(t, bao, logical.UpdateOperation, "keys/mine/config", map[string]any{"deletion_allowed": true})
			call(t, bao, logical.DeleteOperation, "keys/mine", nil)
			createKey(t, t.TempDir(), "mine", bao.URI("mine"), "P-256")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys := t.TempDir()
			createKey(t, keys, "mine", tc.uri, "P-256")
			signer := serve(t, keys, pin, vault.Token)
			remote := signer.connect(t, "mine")
			if _, _, err := remote.Sign(t.Context(), signing.JWTHeader, signertest.Payload(0)); err != nil {
				t.Fatal(err)
			}
			before := remote.Keys()
			tc.replace(t)
			for range 3 {
				if header, signature, err := remote.Sign(t.Context(), signing.JWTHeader, signertest.Payload(0)); err == nil {
					t.Errorf("another key has signed: %s %s", header, signature)
				}
			}
			if diff := cmp.Diff(before.All(), remote.Keys().All()); diff != "" {
				t.Errorf("the published key has changed (-before +now):\n%s", diff)
			}
			if !strings.Contains(signer.log.String(), "the backend has signed with another key") {
				t.Errorf("the log does not say why:\n%s", signer.log.String())
			}
		})
	}
}
