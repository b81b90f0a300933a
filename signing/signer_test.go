// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"strings"
	"testing"

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
