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
	// ErrUnknownKey means that the key source does not have the key that the token names.
	ErrUnknownKey = errors.New("unknown signing key")
	// ErrBadSignature means that the signature is not that of the key that the token names.
	ErrBadSignature = errors.New("bad token signature")
	// ErrNotLegacy means that a token with a good signature is not a legacy token.
	ErrNotLegacy = errors.New("not a legacy token")
)

// VerifyLegacy decodes a token and verifies its signature and issuer. Token.Mismatch compares the
// claims with an account and a Secret.
//
// The key is looked up by key ID only: jwk, jku, x5c and x5u in the header are ignored. A token
// without a key ID is tried with every key, as in kube-apiserver. The key alone decides which
// algorithm is valid. exp, nbf and iat are not checked, because kube-apiserver does not check them in
// a legacy token.
//
// The error is ErrMalformed, ErrUnknownKey, ErrBadSignature or ErrNotLegacy, and contains nothing of
// the token.
func VerifyLegacy(token string, keys signing.KeySource) (Token, error) {
	decoded, err := Inspect(token)
	if err != nil {
		return Token{}, err
	}
	if _, err := signedWith(token, decoded.KeyID, keys.Keys().All()); err != nil {
		return Token{}, err
	}
	if decoded.Issuer != LegacyIssuer {
		return Token{}, fmt.Errorf("%w: claim iss is not %q", ErrNotLegacy, LegacyIssuer)
	}
	return decoded, nil
}

// SignedWith returns the index of the key that signed a token. It looks keys up like VerifyLegacy, and
// checks no claim. Several keys may have the same ID, such as those of published documents.
//
// The error is ErrMalformed, ErrUnknownKey or ErrBadSignature, and contains nothing of the token.
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

// verified reports whether key signed the token. It derives the algorithm from the key and ignores
// its Algorithm field, which a caller may have set.
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
