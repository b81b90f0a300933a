// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"

	"sa-controller-manager/signing"
)

var (
	// ErrUnknownKey says that the token names a key that the key source does not have.
	ErrUnknownKey = errors.New("unknown signing key")
	// ErrBadSignature says that the key which the token names did not make its signature.
	ErrBadSignature = errors.New("bad token signature")
	// ErrNotLegacy says that a token with a good signature is not a legacy token.
	ErrNotLegacy = errors.New("not a legacy token")
)

// VerifyLegacy decodes a token and verifies its signature and issuer. Whether the claims fit an
// account and a Secret is for Token.Mismatch.
//
// The key is found by key ID alone: jwk, jku, x5c and x5u in the header are never looked at. A
// token without a key ID is tried with every key, as kube-apiserver does. The key decides which
// algorithm is valid, whatever the header says. exp, nbf and iat are not checked, because the
// apiserver does not check them in a legacy token.
//
// The error is one of ErrMalformed, ErrUnknownKey, ErrBadSignature and ErrNotLegacy and holds
// nothing of the token.
func VerifyLegacy(token string, keys signing.KeySource) (Token, error) {
	decoded, err := Inspect(token)
	if err != nil {
		return Token{}, err
	}
	if _, err := signedWith(token, decoded.KeyID, keys.Keys().All()); err != nil {
		return Token{}, err
	}
	if decoded.Issuer != LegacyIssuer {
		return Token{}, fmt.Errorf("%w: claim %s is not %q", ErrNotLegacy, claimIssuer, LegacyIssuer)
	}
	return decoded, nil
}

// SignedWith returns the index of the key that made a token's signature. It finds and tries keys as
// VerifyLegacy does, but looks at no claim. There may be several keys with one ID, as where
// documents of others are compared.
//
// The error is one of ErrMalformed, ErrUnknownKey and ErrBadSignature and holds nothing of the
// token.
func SignedWith(token string, keys []signing.PublicKey) (int, error) {
	decoded, err := Inspect(token)
	if err != nil {
		return 0, err
	}
	return signedWith(token, decoded.KeyID, keys)
}

func signedWith(token, keyID string, keys []signing.PublicKey) (int, error) {
	err := ErrUnknownKey
	for i, key := range keys {
		if keyID != "" && key.ID != keyID {
			continue
		}
		if verified(token, key) {
			return i, nil
		}
		err = ErrBadSignature
	}
	return 0, err
}

// verified checks the signature with one key. The algorithm comes from the key's type, not from the
// Algorithm field, which a caller could have set to anything.
func verified(token string, key signing.PublicKey) bool {
	algorithm, err := signing.AlgorithmFor(key.Key)
	if err != nil {
		return false
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods([]string{algorithm}),
		jwt.WithStrictDecoding(),
		jwt.WithoutClaimsValidation(),
	)
	_, err = parser.Parse(token, func(*jwt.Token) (any, error) { return key.Key, nil })
	return err == nil
}
