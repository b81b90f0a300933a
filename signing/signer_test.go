// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"context"
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

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func TestSign(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		pem       []byte
		algorithm string
		size      int // bytes of the signature
	}{
		"RSA 2048": {testkeys.RSA2048(), "RS256", 256},
		"RSA 3072": {testkeys.RSA3072(), "RS256", 384},
		"P-256":    {testkeys.P256(), "ES256", 64},
		"P-384":    {testkeys.P384(), "ES384", 96},
		"P-521":    {testkeys.P521(), "ES512", 132},
	}
	styles := map[string]struct {
		style  signing.HeaderStyle
		header string // with algorithm and key ID to come
	}{
		"legacy": {signing.LegacyHeader, `{"alg":%q,"kid":%q}`},
		"jwt":    {signing.JWTHeader, `{"alg":%q,"kid":%q,"typ":"JWT"}`},
	}
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"somebody"}`))
	for name, tc := range cases {
		for styleName, style := range styles {
			t.Run(name+" "+styleName, func(t *testing.T) {
				key := private(t, tc.pem)
				header, signature, err := key.Sign(t.Context(), style.style, payload)
				if err != nil {
					t.Fatal(err)
				}
				decoded, err := base64.RawURLEncoding.Strict().DecodeString(header)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(fmt.Sprintf(style.header, tc.algorithm, key.ID()), string(decoded)); diff != "" {
					t.Errorf("header: -want +got:\n%s", diff)
				}
				sig, err := base64.RawURLEncoding.Strict().DecodeString(signature)
				if err != nil {
					t.Fatal(err)
				}
				if len(sig) != tc.size {
					t.Errorf("signature has %d bytes, want %d: r and s must keep their leading zeros", len(sig), tc.size)
				}
				if err := jwt.GetSigningMethod(tc.algorithm).Verify(header+"."+payload, sig, key.Public().Key); err != nil {
					t.Errorf("signature does not verify: %v", err)
				}
			})
		}
	}
}

func TestSignRefuses(t *testing.T) {
	t.Parallel()
	key := private(t, testkeys.P256())
	cases := map[string]struct {
		reason  string
		ended   bool
		style   signing.HeaderStyle
		payload string
	}{
		"ended context":  {"a stopping process signs no more", true, signing.LegacyHeader, "e30"},
		"unknown style":  {"no header to put", false, signing.JWTHeader + 1, "e30"},
		"negative style": {"no panic", false, -1, "e30"},
		"empty payload":  {"not a segment", false, signing.LegacyHeader, ""},
		"two segments":   {"would sign another structure", false, signing.LegacyHeader, "e30.e30"},
		"padding":        {"not canonical", false, signing.LegacyHeader, "e30="},
		"standard base64": {"another alphabet", false, signing.LegacyHeader,
			base64.RawStdEncoding.EncodeToString([]byte{0xff, 0xff, 0xfe})},
		"binary": {"no oracle for other protocols", false, signing.LegacyHeader, "\x30\x82"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tc.ended {
				cancel()
			}
			header, signature, err := key.Sign(ctx, tc.style, tc.payload)
			if err == nil || header != "" || signature != "" {
				t.Errorf("%s: Sign returned %q, %q, %v", tc.reason, header, signature, err)
			}
			if tc.ended && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: error %v is not the context's", tc.reason, err)
			}
		})
	}
}

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
			opaque{rawPublic(t, testkeys.RSA2048())}, "an RSA key of 2048 bits held outside this process"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			key, err := signing.NewPrivateKey(tc.key)
			if key != nil || err == nil || !strings.Contains(err.Error(), "found "+tc.want) {
				t.Errorf("%s: NewPrivateKey returned %v, %v, want an error that says found %q", tc.reason, key, err, tc.want)
			}
		})
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
	raw, err := x509.ParsePKCS1PrivateKey(der(t, testkeys.RSA2048()))
	if err != nil {
		t.Fatal(err)
	}
	key, err := signing.NewPrivateKey(raw)
	if err != nil {
		t.Fatal(err)
	}
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
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		printed.Write(encoded)
	}
	text := slog.New(slog.NewTextHandler(&printed, nil))
	text.Info("key", "key", key, "wrapped", wrapped)
	structured := slog.New(slog.NewJSONHandler(&printed, nil))
	structured.Info("key", "key", key, "wrapped", wrapped)
	var none *signing.PrivateKey
	fmt.Fprintf(&printed, "%v %s %#v", none, none, none)

	if !strings.Contains(printed.String(), "RS256 signing key "+key.ID()) {
		t.Error("the key's ID is not printed at all")
	}
	assertNoSecret(t, printed.String(), raw.D, raw.Primes[0], raw.Primes[1], raw.Precomputed.Dp, raw.Precomputed.Qinv)
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
			if strings.Contains(text, form[:32]) {
				t.Errorf("secret number %d is printed in %s", i, name)
			}
		}
	}
}
