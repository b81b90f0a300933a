// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"crypto"
	"crypto/dsa" //nolint:staticcheck // SA1019: a key type to refuse
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func TestAlgorithmFor(t *testing.T) {
	t.Parallel()
	modulus := func(bits uint) *rsa.PublicKey {
		return &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), bits-1), E: 65537}
	}
	cases := map[string]struct {
		reason  string
		key     crypto.PublicKey
		want    string
		refusal string
	}{
		"RSA 2048":       {reason: "the least size", key: testkeys.Parse(testkeys.RSA2048()).Public().Key, want: "RS256"},
		"RSA 3072":       {reason: "any size signs RS256", key: testkeys.Parse(testkeys.RSA3072()).Public().Key, want: "RS256"},
		"RSA 4096":       {reason: "any size signs RS256", key: testkeys.Parse(testkeys.RSA4096()).Public().Key, want: "RS256"},
		"P-256":          {reason: "the curve decides", key: testkeys.Parse(testkeys.P256()).Public().Key, want: "ES256"},
		"P-384":          {reason: "the curve decides", key: testkeys.Parse(testkeys.P384()).Public().Key, want: "ES384"},
		"P-521":          {reason: "ES512 goes with 521 bits", key: testkeys.Parse(testkeys.P521()).Public().Key, want: "ES512"},
		"RSA 2047":       {reason: "one bit short", key: modulus(2047), refusal: "an RSA key of 2047 bits"},
		"P-224":          {reason: "no JWS algorithm", key: &ecdsa.PublicKey{Curve: elliptic.P224()}, refusal: "an EC key on P-224"},
		"Ed25519":        {reason: "the apiserver takes no EdDSA", key: ed25519.PublicKey{1}, refusal: "an Ed25519 key"},
		"HMAC secret":    {reason: "symmetric keys never verify", key: []byte("secret"), refusal: "an unusable key ([]uint8)"},
		"DSA":            {reason: "not in the table", key: &dsa.PublicKey{}, refusal: "an unusable key (*dsa.PublicKey)"},
		"RSA by value":   {reason: "golang-jwt takes pointers only", key: rsa.PublicKey{}, refusal: "an unusable key (rsa.PublicKey)"},
		"nil":            {reason: "no panic", key: nil, refusal: "no key"},
		"nil RSA":        {reason: "no panic", key: (*rsa.PublicKey)(nil), refusal: "an unusable key"},
		"nil EC":         {reason: "no panic", key: (*ecdsa.PublicKey)(nil), refusal: "an unusable key"},
		"empty RSA":      {reason: "no panic", key: &rsa.PublicKey{}, refusal: "an unusable key"},
		"empty EC":       {reason: "no panic", key: &ecdsa.PublicKey{}, refusal: "an unusable key"},
		"foreign signer": {reason: "not a public key", key: "key", refusal: "an unusable key (string)"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := signing.AlgorithmFor(tc.key)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if tc.refusal == "" {
				if err != nil {
					t.Errorf("%s: unexpected error: %v", tc.reason, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "found "+tc.refusal) || !strings.Contains(err.Error(), "accepted is RSA") {
				t.Errorf("%s: error %v does not say found %q and what is accepted", tc.reason, err, tc.refusal)
			}
		})
	}
}
