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

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
)

// TestConforms runs the suite of every signer on keys that are created where they stay.
func TestConforms(t *testing.T) {
	hsm, bao := newToken(t), newVault(t)
	cases := map[string]struct {
		uri        func(name string) string
		algorithms []string
	}{
		"PKCS11":  {hsm.uri, []string{"ES256", "ES384", "ES512", "RS256", "RS256-3072"}},
		"Transit": {bao.uri, []string{"ES256", "ES384", "ES512", "RS256", "RS256-3072"}},
	}
	for name, tc := range cases {
		keys := t.TempDir()
		for _, algorithm := range tc.algorithms {
			key := strings.ToLower(algorithm)
			if out, err := run(t, "create", key, "--keys-dir="+keys, "--uri="+tc.uri(key), "--algorithm="+algorithm); err != nil {
				t.Fatalf("%s: %v: %s", name, err, out)
			}
		}
		signer := serve(t, keys, pin, vaultToken)
		for _, algorithm := range tc.algorithms {
			t.Run(name+"/"+algorithm, func(t *testing.T) {
				signertest.Run(t, func(t *testing.T) signertest.Subject {
					remote := signer.connect(t, strings.ToLower(algorithm))
					return signertest.Subject{
						Signer: remote, Keys: remote, Styles: []signing.HeaderStyle{signing.JWTHeader}, Secret: []string{pin, vaultToken},
					}
				})
			})
		}
	}
}

// TestRefusals wants one line that names the key and what is wrong, and no secret.
func TestRefusals(t *testing.T) {
	hsm, bao := newToken(t), newVault(t)
	keys := t.TempDir()
	for name, uri := range map[string]string{"there": hsm.uri("there"), "bao": bao.uri("bao")} {
		if out, err := run(t, "create", name, "--keys-dir="+keys, "--uri="+uri, "--algorithm=ES256"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	wrong := write(t, filepath.Join(t.TempDir(), "wrong"), "wrong")
	good := hsm.uri("there")
	cases := map[string]struct {
		reason, uri, algorithm, want string
	}{
		"UnknownScheme":    {"a spelling mistake", "pkcs12:token=a", "ES256", `uri scheme "pkcs12": want pkcs11, openbao or vault`},
		"UnknownAlgorithm": {"kube-apiserver takes no other", good, "EdDSA", `algorithm "EdDSA": want one of ES256`},
		"PINInTheURI":      {"it would be in the file and in process lists", good + "&pin-value=1234", "ES256", "a secret in the URI is not accepted"},
		"NoModule":         {"a path that is not there", strings.Replace(good, module, "/none.so", 1), "ES256", "module-path: stat /none.so: no such file"},
		"NoToken":          {"another label", strings.Replace(good, hsm.label, "none", 1), "ES256", "could not find PKCS#11 token"},
		"NoObject":         {"another object", strings.Replace(good, "object=there;id=there", "object=none", 1), "ES256", "found no key pair"},
		"WrongPIN":         {"it is tried once", strings.Replace(good, hsm.pinFile, wrong, 1), "ES256", "the token refuses the PIN in " + wrong},
		"NoPINFile":        {"not mounted", strings.Replace(good, hsm.pinFile, "/none", 1), "ES256", "pin-source: open /none: no such file"},
		"OtherAlgorithm":   {"the key decides", good, "RS256", "the key is for ES256, and the file says RS256"},
		"UnknownAttribute": {"a spelling mistake", good + "&pin-sauce=a", "ES256", `unknown attribute "pin-sauce"`},
		"NoVersion":        {"a rotation inside the engine", strings.Replace(bao.uri("bao"), ";version=1", "", 1), "ES256", "want version"},
		"NewerVersion":     {"not there yet", strings.Replace(bao.uri("bao"), "version=1", "version=2", 1), "ES256", "the key has no version 2"},
		"PlainHTTP":        {"the token would be readable", strings.Replace(bao.uri("bao"), "https://", "http://bao", 1), "ES256", "want address, an https URL"},
		"Forbidden":        {"another token", strings.Replace(bao.uri("bao"), bao.tokenFile, wrong, 1), "ES256", "transit/keys/bao: HTTP 403: permission denied"},
		"UnknownCA":        {"another server", strings.Replace(bao.uri("bao"), "&ca-source="+bao.caFile, "", 1), "ES256", "certificate signed by unknown authority"},
		"NoKey":            {"another name", bao.uri("none"), "ES256", "the engine has no key of that name"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "mine.yaml"), fmt.Sprintf("uri: %q\nalgorithm: %s\n", tc.uri, tc.algorithm))
			out, err := run(t, "serve", "--keys-dir="+dir, "--socket-dir="+t.TempDir())
			if err == nil || !strings.Contains(out, "Error: key mine: ") || !strings.Contains(out, tc.want) {
				t.Errorf("%s: %v: %s\nwant an error with %q", tc.reason, err, out, tc.want)
			}
			for _, secret := range []string{pin, vaultToken, "1234"} {
				if strings.Contains(out, secret) {
					t.Errorf("%s: the output holds a secret:\n%s", tc.reason, out)
				}
			}
		})
	}
	t.Run("CreatedTwice", func(t *testing.T) {
		for name, uri := range map[string]string{"PKCS11": good, "Transit": bao.uri("bao")} {
			if out, err := run(t, "create", "again", "--keys-dir="+t.TempDir(), "--uri="+uri, "--algorithm=ES256"); err == nil {
				t.Errorf("%s: a key that exists was created: %s", name, out)
			}
		}
	})
}

// TestBackendGoesAway wants an answer within two seconds while the backend is away, and signatures
// again after it is back, without a restart.
func TestBackendGoesAway(t *testing.T) {
	hsm, bao := newToken(t), newVault(t)
	kill := startRemote(t)
	cases := map[string]struct {
		uri        string
		gone, back func() error
	}{
		"hsm": {strings.Replace(hsm.uri("hsm"), module, client, 1), func() error { return kill() },
			func() error { kill = startRemote(t); return nil }},
		"sealed": {bao.uri("sealed"), func() error { bao.failure.Store(http.StatusServiceUnavailable); return nil },
			func() error { bao.failure.Store(0); return nil }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			keys := t.TempDir()
			if out, err := run(t, "create", name, "--keys-dir="+keys, "--uri="+tc.uri, "--algorithm=ES256"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			remote := serve(t, keys, pin, vaultToken).connect(t, name)
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
// one to change nothing.
func TestKeysDirIsFollowed(t *testing.T) {
	hsm, keys := newToken(t), t.TempDir()
	signer := serve(t, keys, pin)
	for _, name := range []string{"first", "second"} {
		if out, err := run(t, "create", name, "--keys-dir="+keys, "--uri="+hsm.uri(name), "--algorithm=ES256"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if _, err := signer.connect(t, name).Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(keys, "first.yaml"), "uri: nonsense\n")
	eventually(t, "the error in the log", func() error {
		if !strings.Contains(signer.log.String(), "Failed to serve a key") {
			return fmt.Errorf("not in:\n%s", signer.log.String())
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
