// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	_ "crypto/sha256" // crypto.SHA256
	_ "crypto/sha512" // crypto.SHA384
	"encoding/base64"
	"errors"
	"math/big"
	"strings"
)

// KeyRing are the public keys with which tokens have to verify, by key ID.
type KeyRing struct {
	Keys map[string]crypto.PublicKey
	// Active is the ID of the one that signs, "" if it is all the same which one does. The others are retired.
	Active string
}

// KeyIDOf is the key ID of a public key in PKIX form: its SHA-256, in base64url without padding
// (kubernetes pkg/serviceaccount/jwt.go).
func KeyIDOf(der []byte) string {
	digest := crypto.SHA256.New()
	digest.Write(der)
	return base64.RawURLEncoding.EncodeToString(digest.Sum(nil))
}

// SignedWith is the ID of the key that the token names, "" if it is none.
func SignedWith(token string) string {
	var header struct {
		KeyID string `json:"kid"`
	}
	readSegment(strings.Split(token, ".")[0], &header)
	return header.KeyID
}

// Verify says what is wrong with the signature of a token. It goes by the standard library alone.
func (k *KeyRing) Verify(token string) error {
	var header struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 || !readSegment(parts[0], &header) {
		return errors.New("it holds no token")
	}
	signed := parts[0] + "." + parts[1]
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return errors.New("its signature is not base64url")
	}
	good := false
	switch key := k.Keys[header.KeyID].(type) {
	case *rsa.PublicKey:
		good = header.Algorithm == "RS256" && rsa.VerifyPKCS1v15(key, crypto.SHA256, hashed(crypto.SHA256, signed), signature) == nil
	case *ecdsa.PublicKey:
		hash := map[string]crypto.Hash{"ES256": crypto.SHA256, "ES384": crypto.SHA384}[header.Algorithm]
		good = hash != 0 && verifiesECDSA(key, hashed(hash, signed), signature)
	}
	if !good {
		return errors.New("no key of the ring has signed its token")
	}
	return nil
}

func hashed(hash crypto.Hash, text string) []byte {
	digest := hash.New()
	digest.Write([]byte(text))
	return digest.Sum(nil)
}

// verifiesECDSA takes a signature as JWTs have it: r and s, each as long as the curve's order
// (RFC 7518 section 3.4).
func verifiesECDSA(key *ecdsa.PublicKey, digest, signature []byte) bool {
	size := (key.Curve.Params().BitSize + 7) / 8
	if len(signature) != 2*size {
		return false
	}
	r, s := new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:])
	return ecdsa.Verify(key, digest, r, s)
}
