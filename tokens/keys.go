// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import "sa-controller-manager/signing"

// The states of a key, besides the roles that it has in a ring.
const (
	// Known verifies; which key signs is not known.
	Known signing.Role = "known"
	// Published is in kube-apiserver's JWKS, or in another one.
	Published signing.Role = "published"
	// Unknown is in no set of keys that was given.
	Unknown signing.Role = "unknown"
)

// KeyStates returns all states that the key of a token can have.
func KeyStates() []signing.Role {
	return []signing.Role{signing.Next, signing.Active, signing.Retired, Known, Published, Unknown}
}

// PublicKeys returns the public keys alone, in the same order.
func PublicKeys(keys []signing.Key) []signing.PublicKey {
	all := make([]signing.PublicKey, 0, len(keys))
	for _, key := range keys {
		all = append(all, key.PublicKey)
	}
	return all
}

// KeyOf returns the key that signed a token. Its errors are those of SignedWith.
func KeyOf(token string, keys []signing.Key) (signing.Key, error) {
	index, err := SignedWith(token, PublicKeys(keys))
	if err != nil {
		return signing.Key{}, err
	}
	return keys[index], nil
}

// UsableKeys returns those of published keys that tokens can be verified with, under the IDs that they are
// published with. They are not nil, even if there are none.
func UsableKeys(published []signing.PublicKey, origin string) []signing.Key {
	keys := []signing.Key{}
	for _, key := range published {
		if public, err := signing.NewPublicKey(key.Key); err == nil {
			public.ID = key.ID
			keys = append(keys, signing.Key{PublicKey: public, Role: Published, Origin: origin})
		}
	}
	return keys
}
