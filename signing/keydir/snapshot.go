// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keydir

import (
	"encoding/json"
	"fmt"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
)

// Snapshot is a key ring as it was at one time, checked as a whole. It is immutable.
type Snapshot struct {
	State  rotation.State
	Active *signing.PrivateKey
	// Next is nil unless a rotation has published one.
	Next *signing.PrivateKey
	// Retired are in the order of State.Retired.
	Retired []signing.PublicKey

	keys map[string]signing.PublicKey
}

// Ring is what a Keyring takes.
func (s *Snapshot) Ring() *signing.Ring {
	keys := []signing.Key{s.Active.As(signing.Active)}
	if s.Next != nil {
		keys = append(keys, s.Next.As(signing.Next))
	}
	for _, key := range s.Retired {
		keys = append(keys, key.As(signing.Retired))
	}
	return signing.NewRing(s.State.Generation, keys...)
}

// PublicKey is the verification key with this ID. Every key of the state has one.
func (s *Snapshot) PublicKey(id string) (signing.PublicKey, bool) {
	key, ok := s.keys[id]
	return key, ok
}

// PublicKeys are all verification keys: the one that signs, the next, the retired ones.
func (s *Snapshot) PublicKeys() []signing.PublicKey {
	keys := []signing.PublicKey{s.Active.Public()}
	if s.Next != nil {
		keys = append(keys, s.Next.Public())
	}
	return append(keys, s.Retired...)
}

// parse checks a bundle: the state by itself, and that every file holds the key that the state says.
func parse(data []byte) (*Snapshot, error) {
	var b bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("take the key directory for one content: %w", err)
	}
	state, err := rotation.Decode(b.State)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{State: state, keys: map[string]signing.PublicKey{}}
	for _, key := range state.Keys {
		if err := s.add(key, b.Files[key.File]); err != nil {
			return nil, fmt.Errorf("file %s of %s key %s: %w", key.File, key.Role, key.ID, err)
		}
	}
	for _, key := range state.Retired() {
		s.Retired = append(s.Retired, s.keys[key.ID])
	}
	return s, nil
}

// add takes one key. The private half of a retired key is read only to know that a rollback would find it.
func (s *Snapshot) add(key rotation.Key, data []byte) error {
	public, private, err := parseKey(key, data)
	if err != nil {
		return err
	}
	if public.ID != key.ID || public.Algorithm != key.Algorithm {
		return fmt.Errorf("it holds another key: %s (%s)", public.ID, public.Algorithm)
	}
	s.keys[key.ID] = public
	switch key.Role {
	case signing.Active:
		s.Active = private
	case signing.Next:
		s.Next = private
	case signing.Retired:
	}
	return nil
}

func parseKey(key rotation.Key, data []byte) (signing.PublicKey, *signing.PrivateKey, error) {
	if !key.VerifyOnly {
		private, err := signing.ParsePrivateKey(data)
		if err != nil {
			return signing.PublicKey{}, nil, err
		}
		return private.Public(), private, nil
	}
	keys, err := signing.ParsePublicKeys(data)
	if err != nil {
		return signing.PublicKey{}, nil, err
	}
	if len(keys) != 1 {
		return signing.PublicKey{}, nil, fmt.Errorf("it holds %d keys, want one", len(keys))
	}
	return keys[0], nil, nil
}
