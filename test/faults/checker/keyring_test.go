// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"testing"
)

func TestKeyRing(t *testing.T) {
	t.Parallel()
	rsaKey := generated(rsa.GenerateKey(rand.Reader, 2048))
	p256 := generated(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	p384 := generated(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	other := generated(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	ring := &KeyRing{Keys: map[string]crypto.PublicKey{}, Active: idOf(t, p256)}
	for _, key := range []crypto.Signer{rsaKey, p256, p384} {
		ring.Keys[idOf(t, key)] = key.Public()
	}
	cases := map[string]struct {
		reason        string
		token         string
		good, retired bool
	}{
		"RSA":          {token: signedBy(t, rsaKey, "RS256", idOf(t, rsaKey)), good: true, retired: true},
		"Active":       {token: signedBy(t, p256, "ES256", idOf(t, p256)), good: true},
		"P384":         {token: signedBy(t, p384, "ES384", idOf(t, p384)), good: true, retired: true},
		"Stranger":     {reason: "the ring does not have it, so nothing is owed", token: signedBy(t, other, "ES256", idOf(t, other))},
		"AnothersName": {reason: "the key ID is not its own", token: signedBy(t, other, "ES256", idOf(t, p256))},
		"NoKeyID":      {token: signedBy(t, p256, "ES256", "")},
		"Algorithm":    {reason: "the hash is not that of the curve", token: signedBy(t, p256, "RS256", idOf(t, p256))},
		"NoToken":      {token: "nothing"},
		"Empty":        {},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := ring.Verify(tc.token); (err == nil) != tc.good {
				t.Errorf("%s: verify: %v, want good: %t", tc.reason, err, tc.good)
			}
			if got := ring.Retired(tc.token); got != tc.retired {
				t.Errorf("%s: retired: %t", tc.reason, got)
			}
		})
	}
}

func generated[K crypto.Signer](key K, err error) crypto.Signer {
	if err != nil {
		panic(err)
	}
	return key
}

func idOf(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return KeyIDOf(der)
}

// signedBy is a token with an empty payload. The signature is that of the key, whatever the
// header says.
func signedBy(t *testing.T, key crypto.Signer, algorithm, id string) string {
	t.Helper()
	header, err := json.Marshal(JWTHeader{algorithm, id})
	if err != nil {
		t.Fatal(err)
	}
	signed := base64.RawURLEncoding.EncodeToString(header) + ".e30"
	hash := crypto.SHA256
	if private, ok := key.(*ecdsa.PrivateKey); ok {
		size := (private.Params().BitSize + 7) / 8
		if size > 32 {
			hash = crypto.SHA384
		}
		r, s, err := ecdsa.Sign(rand.Reader, private, hashed(hash, signed))
		if err != nil {
			t.Fatal(err)
		}
		signature := append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...)
		return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
	}
	signature, err := key.Sign(rand.Reader, hashed(hash, signed), hash)
	if err != nil {
		t.Fatal(err)
	}
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}
