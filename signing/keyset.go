// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
)

// KeySource provides the keys that verify tokens.
type KeySource interface {
	// Keys returns the current keys, never nil. It does not block.
	Keys() *KeySet
}

// PublicKey is a verification key with the key ID and the algorithm of its tokens. Its JSON form has
// no key.
type PublicKey struct {
	// ID is kid, derived from the key unless a foreign signer or the author of a JWKS has chosen it.
	ID string `json:"id"`
	// Algorithm is alg, decided by the type of the key alone unless ParseJWKS has read it.
	Algorithm string           `json:"algorithm,omitempty"`
	Key       crypto.PublicKey `json:"-"`
	// Problem says why a key that ParseJWKS has read is not to be used, "" if it may be.
	Problem string `json:"-"`
}

// NewPublicKey derives the ID and the algorithm of a public key. The error says what was found and
// what is accepted.
func NewPublicKey(key crypto.PublicKey) (PublicKey, error) {
	algorithm, err := AlgorithmFor(key)
	if err != nil {
		return PublicKey{}, err
	}
	id, err := keyID(key)
	if err != nil {
		return PublicKey{}, err
	}
	return PublicKey{ID: id, Algorithm: algorithm, Key: key}, nil
}

// Derived reports whether the key ID is the one that key files give the key.
func (k PublicKey) Derived() bool { return k.Digest() == k.ID }

// Digest returns the ID that key files give the key, which may have another ID here.
func (k PublicKey) Digest() string {
	if id, err := keyID(k.Key); err == nil {
		return id
	}
	return k.ID
}

// Equal reports whether two keys have the same ID and are the same key.
func (k PublicKey) Equal(other PublicKey) bool { return k.ID == other.ID && k.SameKey(other) }

// SameKey reports whether both are the same key, under any IDs.
func (k PublicKey) SameKey(other PublicKey) bool {
	same, ok := k.Key.(interface {
		Equal(other crypto.PublicKey) bool
	})
	return ok && same.Equal(other.Key)
}

// Verify returns an error if the key has not signed header.payload. All three are segments.
func (k PublicKey) Verify(header, payload, signature string) error {
	method, err := methodFor(k.Key)
	if err != nil {
		return err
	}
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	if err != nil || !isBase64URL(signature) { // the decoder skips line breaks
		return errors.New("the signature is not a base64url segment")
	}
	if method.Verify(header+"."+payload, decoded, k.Key) != nil {
		return errors.New("the signature is not of this key")
	}
	return nil
}

// KeySet is an immutable set of verification keys in the order they were given. The nil set is
// empty.
type KeySet struct {
	keys []PublicKey
	byID map[string]PublicKey
	// removed are the IDs and digests of keys that the store has had; true for revoked ones.
	removed map[string]bool
}

// NewKeySet returns the set of keys. Of keys with the same ID the first one is kept: they are equal,
// because the ID is a digest of the key, or else the store has made sure that no other key has it.
func NewKeySet(keys ...PublicKey) *KeySet {
	set := &KeySet{byID: make(map[string]PublicKey, len(keys))}
	for _, key := range keys {
		if _, known := set.byID[key.ID]; known {
			continue
		}
		set.byID[key.ID] = key
		set.keys = append(set.keys, key)
	}
	return set
}

// Lookup finds a key by its ID. The ID comes from an unverified token: it is only compared, and
// never used as a path or URL.
func (s *KeySet) Lookup(id string) (PublicKey, bool) {
	if s == nil {
		return PublicKey{}, false
	}
	key, ok := s.byID[id]
	return key, ok
}

// Revoked reports whether the key with this ID was revoked, so that nothing accepts its tokens.
func (s *KeySet) Revoked(id string) bool { return s != nil && s.removed[id] }

// All returns a copy of all keys, in order.
func (s *KeySet) All() []PublicKey {
	if s == nil {
		return nil
	}
	return slices.Clone(s.keys)
}

// keyID derives the key ID (JWS header kid) of a public key: the unpadded base64url form of the
// SHA-256 of its PKIX DER encoding, 43 characters, as k8s.io/kubernetes pkg/serviceaccount/jwt.go
// does. A key has the same ID here, in kube-controller-manager and in kube-apiserver, so moving it
// between them breaks no token.
//
// The derivation must stay one-way: from a reversible ID a verifier could take the key out of the
// header of the token that it verifies, and any token would be valid.
func keyID(key crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encode public key as PKIX: %w", err)
	}
	digest := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(digest[:]), nil
}
