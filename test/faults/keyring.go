// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	_ "crypto/sha256" // crypto.SHA256
	_ "crypto/sha512" // crypto.SHA384
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
)

// keyRing are the public keys with which tokens have to verify, by key ID.
type keyRing struct {
	keys map[string]crypto.PublicKey
	// active is the ID of the one that signs. The others are retired.
	active string
}

// ring is what the operator has left: its keys as the ring file has them, the active one among
// them, once kube-apiserver has tokens signed with that one. The signer may have read the last
// change a moment later than the operator made it.
func (w *World) ring(ctx context.Context) (*keyRing, error) {
	printed, err := w.operator.keys(ctx, "list", "-o=pem")
	if err != nil {
		return nil, err
	}
	ring := &keyRing{keys: map[string]crypto.PublicKey{}}
	for block, rest := pem.Decode(printed); block != nil; block, rest = pem.Decode(rest) {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read the key ring: %w", err)
		}
		ring.keys[keyIDOf(block.Bytes)] = key
	}
	if ring.active, err = w.operator.activeKey(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startAgain)
	defer cancel()
	return ring, try(ctx, "have tokens signed with the active key", func(ctx context.Context) error {
		token, err := w.requestOnce(ctx)
		if err != nil {
			return err
		}
		if id := headerOf(token).KeyID; id != ring.active {
			return fmt.Errorf("kube-apiserver has tokens signed with key %q, want the active key %q", id, ring.active)
		}
		return nil
	})
}

// oneKey is the ring of a cluster without ring files: the key in its file.
func (w *World) oneKey() (*keyRing, error) {
	content, err := os.ReadFile(w.cluster.SigningKeyFile())
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("the signing key is no PEM")
	}
	private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the signing key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("read the signing key: %w", err)
	}
	id := keyIDOf(der)
	return &keyRing{keys: map[string]crypto.PublicKey{id: private.Public()}, active: id}, nil
}

// keyIDOf is the key ID of a public key in PKIX form: its SHA-256, in base64url without padding
// (kubernetes pkg/serviceaccount/jwt.go).
func keyIDOf(der []byte) string {
	digest := crypto.SHA256.New()
	digest.Write(der)
	return base64.RawURLEncoding.EncodeToString(digest.Sum(nil))
}

// retired reports whether a key of the ring has signed the token that signs no more.
func (k *keyRing) retired(token string) bool {
	id := headerOf(token).KeyID
	return id != k.active && k.keys[id] != nil
}

// verify says what is wrong with the signature of a token. It goes by the standard library alone.
func (k *keyRing) verify(token string) error {
	header := headerOf(token)
	signed, encoded, _ := cutLast(token, ".")
	signature, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return errors.New("its signature is not base64url")
	}
	good := false
	switch key := k.keys[header.KeyID].(type) {
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

// jwtHeader is what a token says of its signature.
type jwtHeader struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}

// headerOf reads a token's header; an empty one if it is none.
func headerOf(token string) jwtHeader {
	encoded, _, _ := strings.Cut(token, ".")
	var header jwtHeader
	if !readSegment(encoded, &header) {
		return jwtHeader{}
	}
	return header
}
