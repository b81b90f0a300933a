// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

// maxJWKs is how many keys a document may have. Those of large providers have ten.
const maxJWKs = 100

// ProblemPrivate is the Problem of a key whose private or symmetric half is in the document.
const ProblemPrivate = "the document contains the private key, with which every reader can sign tokens: rotate now"

// ParseJWKS reads a JSON Web Key Set (RFC 7517, section 5) from any source, with the IDs and the
// algorithms that it says, "" if it says none. As that section demands, a key that cannot be read, or
// whose kind signs no ServiceAccount tokens, does not affect the others: it is returned with a Problem
// and without its Key. It is an error if the document is no JWKS, or has no key or more than a hundred; the error
// contains nothing of the document.
func ParseJWKS(document []byte) ([]PublicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &set); err != nil {
		return nil, errors.New("it is not a JWKS: not a JSON object with a list of keys")
	}
	if len(set.Keys) == 0 {
		return nil, errors.New("the document holds no key: want a JSON object with a list of keys")
	}
	if len(set.Keys) > maxJWKs {
		return nil, fmt.Errorf("the document holds %d keys: want %d at most", len(set.Keys), maxJWKs)
	}
	keys := make([]PublicKey, 0, len(set.Keys))
	for _, raw := range set.Keys {
		keys = append(keys, parseJWK(raw))
	}
	return keys, nil
}

func parseJWK(raw json.RawMessage) PublicKey {
	var encoded struct {
		jwk

		D string `json:"d"` // private: RFC 7518, sections 6.2.2.1 and 6.3.2.1
		K string `json:"k"` // symmetric: section 6.4.1
	}
	if err := json.Unmarshal(raw, &encoded); err != nil {
		return PublicKey{Problem: "not a JSON object of strings"}
	}
	published := PublicKey{ID: encoded.ID, Algorithm: encoded.Algorithm}
	key, err := decodeJWK(encoded.jwk)
	if err != nil {
		published.Problem = err.Error()
	} else {
		published.Key = key
	}
	if encoded.D != "" || encoded.K != "" {
		published.Problem = ProblemPrivate
	}
	return published
}

// decodeJWK accepts the keys that AlgorithmFor accepts.
func decodeJWK(encoded jwk) (crypto.PublicKey, error) {
	var key crypto.PublicKey
	var err error
	switch encoded.Type {
	case typeRSA:
		key, err = decodeRSA(encoded)
	case typeEC:
		key, err = decodeEC(encoded)
	default:
		return nil, errors.New("neither an RSA nor an EC key")
	}
	if err != nil {
		return nil, err
	}
	_, err = AlgorithmFor(key)
	return key, err
}

// maxModulus is the longest modulus that is used, in bytes: that of a key of 16384 bits.
const maxModulus = 2048

func decodeRSA(encoded jwk) (crypto.PublicKey, error) {
	modulus, err := decodeInteger("n", encoded.Modulus)
	if err != nil {
		return nil, err
	}
	exponent, err := decodeInteger("e", encoded.Exponent)
	if err != nil {
		return nil, err
	}
	e := new(big.Int).SetBytes(exponent)
	// crypto/rsa does not verify with larger exponents.
	if len(modulus) > maxModulus || e.BitLen() > 31 || e.Int64() < 3 || e.Bit(0) == 0 {
		return nil, errors.New("an RSA key with a modulus or exponent out of range")
	}
	return &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: int(e.Int64())}, nil
}

func decodeEC(encoded jwk) (crypto.PublicKey, error) {
	curve := curveNamed(encoded.Curve)
	if curve == nil {
		return nil, errors.New("an EC key on a curve other than P-256, P-384 or P-521")
	}
	x, err := decodeInteger("x", encoded.X)
	if err != nil {
		return nil, err
	}
	y, err := decodeInteger("y", encoded.Y)
	if err != nil {
		return nil, err
	}
	// This checks the lengths too, and that the point is on the curve.
	key, err := ecdsa.ParseUncompressedPublicKey(curve, slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil, errors.New("an EC key whose x and y are no point of its curve")
	}
	return key, nil
}

func curveNamed(name string) elliptic.Curve {
	for _, curve := range []elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()} {
		if curve.Params().Name == name {
			return curve
		}
	}
	return nil
}

func decodeInteger(name, text string) ([]byte, error) {
	decoded, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(decoded) == 0 {
		return nil, fmt.Errorf("its member %s is missing or not base64url", name)
	}
	return decoded, nil
}
