// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"

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

// generators generate the kinds of keys that kube-apiserver accepts.
var generators = map[string]func() (crypto.Signer, error){
	"RSA-2048": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 2048) },
	"RSA-3072": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 3072) },
	"RSA-4096": func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 4096) },
	"P-256":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
	"P-384":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) },
	"P-521":    func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P521(), rand.Reader) },
}

// KeyKinds returns the kinds that GenerateKey accepts, sorted.
func KeyKinds() []string { return slices.Sorted(maps.Keys(generators)) }

// KindOf returns the kind of a key, for GenerateKey to generate another one like it.
func KindOf(key PublicKey) string {
	switch k := key.Key.(type) {
	case *ecdsa.PublicKey:
		return k.Curve.Params().Name
	case *rsa.PublicKey:
		switch bits := k.N.BitLen(); {
		case bits <= 2048:
			return "RSA-2048"
		case bits <= 3072:
			return "RSA-3072"
		}
	}
	return "RSA-4096"
}

// GenerateKey generates a key of one of KeyKinds.
func GenerateKey(kind string) (*PrivateKey, error) {
	generate, ok := generators[kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind of key %q: want one of %s", kind, strings.Join(KeyKinds(), ", "))
	}
	signer, err := generate()
	if err != nil {
		return nil, fmt.Errorf("generate a key of kind %s: %w", kind, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return nil, fmt.Errorf("encode a key of kind %s: %w", kind, err)
	}
	return ParsePrivateKey(pem.EncodeToMemory(&pem.Block{Type: labelPKCS8, Bytes: der}))
}
