// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"errors"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

func TestSignedWith(t *testing.T) {
	t.Parallel()
	rsa, ec := testkeys.Parse(testkeys.RSA2048()).Public(), testkeys.Parse(testkeys.P256()).Public()
	impostor := signing.PublicKey{ID: ec.ID, Algorithm: rsa.Algorithm, Key: rsa.Key}
	token, err := tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims).Legacy(t.Context(), account, secretName)
	testutil.Must(t, err)
	// TestVerifyLegacyRefuses has the attacks.
	cases := map[string]struct {
		token   string
		keys    []signing.PublicKey
		want    int
		wantErr error
	}{
		"its key":            {token, []signing.PublicKey{rsa, ec}, 1, nil},
		"two of the same ID": {token, []signing.PublicKey{rsa, impostor, ec}, 2, nil},
		"other keys":         {token, []signing.PublicKey{rsa}, 0, tokens.ErrUnknownKey},
		"no token":           {"CANARY", []signing.PublicKey{ec}, 0, tokens.ErrMalformed},
		"no ID, wrong keys":  {unsigned(`{"alg":"ES256"}`, "{}"), []signing.PublicKey{rsa, ec}, 0, tokens.ErrBadSignature},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tokens.SignedWith(tc.token, tc.keys)
			if got != tc.want || !errors.Is(err, tc.wantErr) {
				t.Errorf("got %d, %v; want %d, %v", got, err, tc.want, tc.wantErr)
			}
		})
	}
}
