// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"testing"

	"sa-controller-manager/internal/testutil"
)

// TestKeyRing wants every token to be found out that no key of the ring has signed.
func TestKeyRing(t *testing.T) {
	t.Parallel()
	active, retired, other := newKey(t), newKey(t), newKey(t)
	ring := &KeyRing{Keys: map[string]crypto.PublicKey{}, Active: idOf(t, active)}
	for _, key := range []*ecdsa.PrivateKey{active, retired} {
		ring.Keys[idOf(t, key)] = key.Public()
	}
	cases := map[string]struct {
		reason string
		token  string
		good   bool
	}{
		"Active":       {token: signedBy(t, active, "ES256", idOf(t, active)), good: true},
		"Retired":      {token: signedBy(t, retired, "ES256", idOf(t, retired)), good: true},
		"Stranger":     {reason: "the ring does not have it", token: signedBy(t, other, "ES256", idOf(t, other))},
		"AnothersName": {reason: "the key ID is not its own", token: signedBy(t, other, "ES256", idOf(t, active))},
		"NoKeyID":      {token: signedBy(t, active, "ES256", "")},
		"Algorithm":    {reason: "the hash is not that of the curve", token: signedBy(t, active, "RS256", idOf(t, active))},
		"NoToken":      {token: "nothing"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := ring.Verify(tc.token); (err == nil) != tc.good {
				t.Errorf("%s: verify: %v, want good: %t", tc.reason, err, tc.good)
			}
		})
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testutil.Must(t, err)
	return key
}

func idOf(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	testutil.Must(t, err)
	return KeyIDOf(der)
}

// signedBy is a token with an empty payload. The signature is that of the key, whatever the header
// says.
func signedBy(t *testing.T, key *ecdsa.PrivateKey, algorithm, id string) string {
	t.Helper()
	header, err := json.Marshal(map[string]string{"alg": algorithm, "kid": id})
	testutil.Must(t, err)
	signed := base64.RawURLEncoding.EncodeToString(header) + ".e30"
	r, s, err := ecdsa.Sign(rand.Reader, key, hashed(crypto.SHA256, signed))
	testutil.Must(t, err)
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}
