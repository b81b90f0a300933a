// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
)

// minRSABits is the least modulus length that signs or verifies (RFC 7518, section 3.3).
const minRSABits = 2048

// acceptedKeys ends every error about a key, so that the user knows which key to make instead.
const acceptedKeys = "RSA of at least 2048 bits, or EC on P-256, P-384 or P-521"

// AlgorithmFor returns the JWS algorithm of a public key: RS256, ES256, ES384 or ES512. It depends
// on the key alone, never on the header of a token, which rules out algorithm confusion. Other keys
// are an error.
func AlgorithmFor(key crypto.PublicKey) (string, error) {
	method, err := methodFor(key)
	if err != nil {
		return "", err
	}
	return method.Alg(), nil
}

// methodFor maps a key to its JWS algorithm and the code that computes it.
//
// These are the algorithms that kube-apiserver accepts (k8s.io/kubernetes
// pkg/serviceaccount/jwt.go, and validateJWTHeader of its KEP-740 client): RS256 for RSA keys of any
// size, and the ECDSA algorithm of the curve for EC keys. It accepts no EdDSA, PSS or HMAC.
func methodFor(key crypto.PublicKey) (jwt.SigningMethod, error) {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k != nil && k.N != nil && k.N.BitLen() >= minRSABits {
			return jwt.SigningMethodRS256, nil
		}
	case *ecdsa.PublicKey:
		if k == nil {
			break
		}
		switch k.Curve {
		case elliptic.P256():
			return jwt.SigningMethodES256, nil
		case elliptic.P384():
			return jwt.SigningMethodES384, nil
		case elliptic.P521():
			return jwt.SigningMethodES512, nil
		}
	}
	return nil, fmt.Errorf("found %s; accepted is %s", describeKey(key), acceptedKeys)
}

// describeKey returns the kind and size of a key for an error message, and no key material.
func describeKey(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k != nil && k.N != nil {
			return fmt.Sprintf("an RSA key of %d bits", k.N.BitLen())
		}
	case *ecdsa.PublicKey:
		if k != nil && k.Curve != nil {
			return "an EC key on " + k.Curve.Params().Name
		}
	case ed25519.PublicKey:
		return "an Ed25519 key"
	case nil:
		return "no key"
	}
	return fmt.Sprintf("an unusable key (%T)", key)
}
