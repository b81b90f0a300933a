// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/util/keyutil"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
)

func TestNewPrivateKeyRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		key    crypto.Signer
		want   string
	}{
		"nil":      {"no panic", nil, "no key"},
		"nil RSA":  {"no panic", (*rsa.PrivateKey)(nil), "no key"},
		"nil EC":   {"no panic", (*ecdsa.PrivateKey)(nil), "no key"},
		"empty EC": {"no panic", &ecdsa.PrivateKey{}, "an unusable key"},
		"Ed25519":  {"the apiserver takes no EdDSA", ed25519.NewKeyFromSeed(make([]byte, 32)), "an Ed25519 key"},
		"other signer": {"golang-jwt signs with two concrete types only",
			opaque{testkeys.Parse(testkeys.RSA2048()).Public().Key}, "an RSA key of 2048 bits held outside this process"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			key, err := signing.NewPrivateKey(tc.key)
			testutil.Expect(t, key == nil && err != nil && strings.Contains(err.Error(), "found "+tc.want),
				"%s: NewPrivateKey returned %v, %v, want an error that says found %q", tc.reason, key, err, tc.want)
		})
	}
}

func TestNewPublicKeyRefuses(t *testing.T) {
	t.Parallel()
	for found, key := range map[string]crypto.PublicKey{
		"no key": nil, "an unusable key (*ecdsa.PublicKey)": (*ecdsa.PublicKey)(nil), "an unusable key ([]uint8)": []byte("HMAC secret"),
		"an RSA key of 2047 bits": &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2046), E: 65537},
	} {
		_, err := signing.NewPublicKey(key)
		testutil.CheckError(t, found, "found "+found+"; accepted is RSA of at least 2048 bits", err)
	}
}

// opaque is a signer whose key is elsewhere, such as in a hardware module.
type opaque struct{ public crypto.PublicKey }

func (o opaque) Public() crypto.PublicKey { return o.public }

func (o opaque) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errors.New("not reached")
}

// TestPrivateKeyNeverPrints formats a key in every way a log line could, and looks for its secret
// numbers in each base.
func TestPrivateKeyNeverPrints(t *testing.T) {
	t.Parallel()
	raw := testutil.Get(x509.ParsePKCS1PrivateKey(der(t, testkeys.RSA2048())))(t)
	key := testkeys.Parse(testkeys.RSA2048())
	ring := signing.NewKeyring(signing.KeyFileRing(key))
	type wrapper struct {
		Key   *signing.PrivateKey
		inner *signing.PrivateKey
		Value signing.PrivateKey
		Ring  *signing.Keyring
	}
	wrapped := wrapper{key, key, *key, ring} // a value has none of the methods

	var printed strings.Builder
	for verb := range strings.FieldsSeq("%v %+v %#v %s %q %d %x %X %o %b %t %e %c %U %p %T") {
		fmt.Fprintf(&printed, verb+" ", key)
		fmt.Fprintf(&printed, verb+" ", *key)
		fmt.Fprintf(&printed, verb+" ", wrapped)
		fmt.Fprintf(&printed, verb+" ", &wrapped)
		fmt.Fprintf(&printed, verb+" ", ring)
	}
	for _, value := range []any{key, *key, wrapped, ring} {
		encoded := testutil.Get(json.Marshal(value))(t)
		printed.Write(encoded)
	}
	text := slog.New(slog.NewTextHandler(&printed, nil))
	text.Info("key", "key", key, "wrapped", wrapped)
	structured := slog.New(slog.NewJSONHandler(&printed, nil))
	structured.Info("key", "key", key, "wrapped", wrapped)
	var none *signing.PrivateKey
	fmt.Fprintf(&printed, "%v %s %#v", none, none, none)

	testutil.Expect(t, strings.Contains(printed.String(), "RS256 signing key "+key.ID()), "the key's ID is not printed at all")
	testutil.Expect(t, !strings.Contains(printed.String(), "PRIVATE KEY"), "the PEM block is printed")
	asPEM := new(big.Int).SetBytes(key.PEM())
	assertNoSecret(t, printed.String(), asPEM, raw.D, raw.Primes[0], raw.Primes[1], raw.Precomputed.Dp, raw.Precomputed.Qinv)
}

func assertNoSecret(t *testing.T, text string, secrets ...*big.Int) {
	t.Helper()
	for i, secret := range secrets {
		for name, form := range map[string]string{
			"decimal":     secret.String(),
			"hexadecimal": fmt.Sprintf("%x", secret),
			"HEXADECIMAL": fmt.Sprintf("%X", secret),
			"bytes":       strings.Trim(fmt.Sprint(secret.Bytes()), "[]"),
			"words":       strings.Trim(fmt.Sprint(secret.Bits()), "[]"),
			"base64":      base64.StdEncoding.EncodeToString(secret.Bytes()),
		} {
			testutil.Expect(t, !strings.Contains(text, form[:32]), "secret number %d is printed in %s", i, name)
		}
	}
}

// TestGuard: each check can keep the key from signing, also one that is added while the guard is in use.
func TestGuard(t *testing.T) {
	t.Parallel()
	guard := &signing.Guard{Signer: testkeys.Parse(testkeys.P256())}
	sign := func() error {
		_, _, err := guard.Sign(t.Context(), signing.LegacyHeader, "payload")
		return err
	}
	testutil.Must(t, sign())
	reasons := []error{errors.New("refused"), errors.New("pruned")}
	now := make([]error, len(reasons))
	for i, reason := range reasons {
		guard.Add(func() error { return now[i] })
		now[i] = reason
		blocked, ok := errors.AsType[*signing.BlockedError](sign())
		testutil.Expect(t, ok && errors.Is(blocked, reason) && errors.Is(guard.May(), reason), "%v, want it blocked because of %q", blocked,
			reason)
		now[i] = nil
		testutil.Must(t, sign())
	}
}

func TestGenerateKey(t *testing.T) {
	t.Parallel()
	want := map[string]string{"RSA-2048": "RS256", "P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
	for name, algorithm := range want {
		p, err := signing.GenerateKey(name)
		if err != nil || p.Public().Algorithm != algorithm {
			t.Errorf("%s: got %v and %v, want %s", name, p, err, algorithm)
			continue
		}
		again, err := signing.ParsePrivateKey(p.PEM())
		testutil.Expect(t, err == nil && again.Public().ID == p.Public().ID, "%s: cannot be read again: %v", name, err)
		if other, err := signing.GenerateKey(name); err != nil || other.Public().ID == p.Public().ID {
			t.Errorf("%s: twice the same key, or %v", name, err)
		}
	}
	if _, err := signing.GenerateKey("RSA-1024"); err == nil || !strings.Contains(err.Error(), `"RSA-1024"`) ||
		!strings.Contains(err.Error(), "P-256, P-384, P-521, RSA-2048") {
		t.Errorf("a weak kind: %v", err)
	}
}

var everyKind = map[string][]byte{
	"RSA 2048": testkeys.RSA2048(),
	"RSA 3072": testkeys.RSA3072(),
	"RSA 4096": testkeys.RSA4096(),
	"P-256":    testkeys.P256(),
	"P-384":    testkeys.P384(),
	"P-521":    testkeys.P521(),
}

// TestKeyringConforms runs the suite on a ring of each kind of key that rotates to another kind.
func TestKeyringConforms(t *testing.T) {
	t.Parallel()
	for name, pem := range everyKind {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signertest.Run(t, func(*testing.T) signertest.Subject {
				ring := signing.NewKeyring(signing.KeyFileRing(testkeys.Parse(pem)), testkeys.Parse(testkeys.RSA2048Other()).Public())
				return signertest.Subject{
					Signer: ring,
					Keys:   ring,
					Styles: []signing.HeaderStyle{signing.LegacyHeader, signing.JWTHeader},
					Secret: strings.Split(strings.TrimSpace(string(pem)), "\n"),
					Rotate: func(*testing.T) {
						next := testkeys.Parse(testkeys.P256Other())
						ring.Set(signing.NewRing(next.As(signing.Active), testkeys.Parse(pem).Public().As(signing.Retired)))
					},
				}
			})
		})
	}
}

// TestKeyringSteps walks rings through their life, and compares all keys with their roles after each
// step. The active key signs, and none if there is no active key.
func TestKeyringSteps(t *testing.T) {
	t.Parallel()
	a, b := testkeys.Parse(testkeys.RSA2048()), testkeys.Parse(testkeys.RSA2048Other())
	other := testkeys.Parse(testkeys.P384()).Public()
	names := map[string]string{a.ID(): "a", b.ID(): "b", other.ID: "other"}

	store := func(keys ...signing.Key) func(*signing.Keyring) {
		return func(r *signing.Keyring) { r.Set(signing.NewRing(keys...)) }
	}
	verifyOnly := func(keys ...signing.PublicKey) func(*signing.Keyring) {
		return func(r *signing.Keyring) { r.SetVerifyOnly(keys) }
	}
	type step struct {
		do   func(*signing.Keyring)
		want string
	}
	cases := map[string]struct {
		reason string
		ring   *signing.Keyring
		steps  []step
	}{
		"key file": {
			"kube-apiserver verifies with all keys of such a file, too",
			signing.NewKeyring(signing.KeyFileRing(a, a.Public(), other)), []step{
				{func(*signing.Keyring) {}, "a active, other retired"},
			},
		},
		"verify only": {
			"verification files are replaced as a whole, and never in the way of the key that signs",
			signing.NewKeyring(signing.KeyFileRing(a), other, a.Public()), []step{
				{func(*signing.Keyring) {}, "a active, other verify-only"},
				{verifyOnly(b.Public()), "a active, b verify-only"},
				{verifyOnly(), "a active"},
			},
		},
		"no active key": {
			"a ring that verifies only, and gets its first key",
			signing.NewKeyring(signing.KeyFileRing(nil), other), []step{
				{func(*signing.Keyring) {}, "other verify-only"},
				{store(a.As(signing.Active)), "a active, other verify-only"},
			},
		},
		"ring of a store": {
			"the store says which key signs and which one is gone, and the verification files stay",
			signing.NewKeyring(signing.NewRing(a.As(signing.Active)), other), []step{
				{store(b.As(signing.Next), a.As(signing.Active)), "a active, b next, other verify-only"},
				{store(a.Public().As(signing.Retired), b.As(signing.Active)), "b active, a retired, other verify-only"},
				{store(a.As(signing.Active), b.Public().As(signing.Retired)), "a active, b retired, other verify-only"},
				{verifyOnly(b.Public(), a.Public()), "a active, b retired"}, // the weightier role counts
				{store(a.As(signing.Active)), "a active, b verify-only"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, step := range tc.steps {
				step.do(tc.ring)
				ring := tc.ring.Ring()
				var roles, listed []string
				for _, key := range ring.All() {
					roles = append(roles, names[key.ID]+" "+string(ring.Role(key.ID)))
					listed = append(listed, key.ID)
				}
				testutil.Check(t, fmt.Sprintf("%s: step %d", tc.reason, i), step.want, strings.Join(roles, ", "))
				testutil.Check(t, "keys that verify", listed, ids(tc.ring.Keys().All()))
				header, _, err := tc.ring.Sign(t.Context(), signing.JWTHeader, "e30")
				active, _, signs := strings.Cut(step.want, " active")
				testutil.Expect(t, signs == (err == nil) && (!signs || names[signertest.KeyID(t, header)] == active),
					"%s: step %d: signed %s, %v",
					tc.reason, i, header, err)
				role := ring.Role("unknown")
				testutil.Expect(t, role == "", "%s: step %d: a key that is not there is %s", tc.reason, i, role)
				if next := ring.Next(); strings.Contains(step.want, " next") != (next != nil) || next != nil &&
					ring.Role(next.ID()) != signing.Next {
					t.Errorf("%s: step %d: the next key is %v", tc.reason, i, next)
				}
			}
		})
	}
}

// addFiles seeds a fuzz target with every PEM file of the tests, alone and after another one.
func addFiles(f *testing.F) {
	f.Helper()
	f.Add([]byte{})
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END EC PRIVATE KEY-----\n"))
	for _, pattern := range []string{"testdata/pem/*.pem", "testkeys/keys/*.pem"} {
		paths, err := filepath.Glob(pattern)
		testutil.Require(f, err == nil && len(paths) != 0, "no seeds in %s: %v", pattern, err)
		for _, path := range paths {
			data := testutil.Get(os.ReadFile(path))(f)
			f.Add(data)
			f.Add(slices.Concat(data, testkeys.P256()))
			f.Add(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
		}
	}
}

// FuzzParsePublicKeys compares with what kube-apiserver reads --service-account-key-file with.
// Every key of its that is in the table is returned, in the same order, or told of; what comes on
// top is in one of the two forms that it does not read.
func FuzzParsePublicKeys(f *testing.F) {
	addFiles(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := signing.ParsePublicKeys(data)
		testutil.Require(t, (err == nil) == (len(keys) > 0), "returned %d keys and %v", len(keys), err)
		testutil.Require(t, err == nil || len(err.Error()) <= 250, "refused with the long error %v", err)
		for _, key := range keys {
			if renamed, err := signing.NewPublicKey(key.Key); err != nil || renamed.ID != key.ID || renamed.Algorithm != key.Algorithm {
				t.Fatalf("returned a key that is not in the table: %v", err)
			}
		}
		want, outside := upstreamIDs(data)
		got := ids(keys)
		testutil.Require(t, slices.Equal(got, want), "key IDs are %v, want %v", got, want)
		unusable := signing.UnusableKey(data)
		testutil.Require(t, !outside || unusable != nil, "a key was lost without a word")
	})
}

// upstreamIDs asks client-go block by block, and adds the two forms it does not know. outside tells
// whether there is a key besides that is not in the table.
func upstreamIDs(data []byte) (want []string, outside bool) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		keys, err := keyutil.ParsePublicKeysPEM(pem.EncodeToMemory(&pem.Block{Type: "ANY", Bytes: block.Bytes}))
		if err != nil {
			if key, err := x509.ParsePKCS1PublicKey(block.Bytes); err == nil {
				keys = append(keys, key)
			}
			if key, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
				if signer, ok := key.(crypto.Signer); ok {
					keys = append(keys, signer.Public())
				}
			}
		}
		for _, key := range keys {
			named, err := signing.NewPublicKey(key)
			if err != nil {
				outside = true
				continue
			}
			want = append(want, named.ID)
		}
	}
	return want, outside
}
