// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package jwks

import (
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// State is the role of a key in a ring, or one of the states below.
type State = signing.Role

const (
	// Known verifies; which key signs is not known.
	Known State = "known"
	// Published is in kube-apiserver's JWKS, or in another one.
	Published State = "published"
	// Unknown is no key of theirs.
	Unknown State = "unknown"
)

// States are all of them.
func States() []State {
	return []State{signing.Next, signing.Active, signing.Retired, Known, Published, Unknown}
}

// Key is a verification key with its state.
type Key struct {
	signing.PublicKey

	State State
	// Origin says where it was found, for people.
	Origin string
}

// Public are the keys alone, each once.
func Public(keys []Key) []signing.PublicKey { return signing.NewKeySet(publicKeys(keys)...).All() }

func publicKeys(keys []Key) []signing.PublicKey {
	all := make([]signing.PublicKey, 0, len(keys))
	for _, key := range keys {
		all = append(all, key.PublicKey)
	}
	return all
}

// SignedWith is the key that made the signature of a token. Its errors are those of
// tokens.SignedWith.
func SignedWith(token string, keys []Key) (Key, error) {
	index, err := tokens.SignedWith(token, publicKeys(keys))
	if err != nil {
		return Key{}, err
	}
	return keys[index], nil
}

// Usable are those of published keys that tokens can be verified with, under the IDs that they are
// published with. They are not nil, even if there are none.
func Usable(published []signing.PublishedKey, origin string) []Key {
	keys := []Key{}
	for _, key := range published {
		if key.Key == nil {
			continue
		}
		if public, err := signing.NewPublicKey(key.Key); err == nil {
			public.ID = key.ID
			keys = append(keys, Key{PublicKey: public, State: Published, Origin: origin})
		}
	}
	return keys
}
