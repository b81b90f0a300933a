// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"crypto"
	"slices"
)

// KeySource provides the keys that verify tokens.
type KeySource interface {
	// Keys returns the current keys, never nil. It does not block.
	Keys() *KeySet
}

// PublicKey is a verification key with the key ID and the algorithm of its tokens.
type PublicKey struct {
	ID        string // kid
	Algorithm string // alg, decided by the key's type alone
	Key       crypto.PublicKey
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

// KeySet is an immutable set of verification keys in the order they were given. The nil set is
// empty.
type KeySet struct {
	keys []PublicKey
	byID map[string]PublicKey
}

// NewKeySet returns the set of keys. Keys with the same ID are equal, because the ID is a digest of
// the key, and are kept once.
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

// All returns a copy of all keys, in order.
func (s *KeySet) All() []PublicKey {
	if s == nil {
		return nil
	}
	return slices.Clone(s.keys)
}
