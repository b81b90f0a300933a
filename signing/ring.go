// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"cmp"
	"slices"
)

// Role is what a key of a ring does besides verifying, which keys of every role do.
type Role string

const (
	// Active is the key that signs. A ring has at most one.
	Active Role = "active"
	// Next is the key that is published and does not sign yet. A ring has at most one.
	Next Role = "next"
	// Retired keys signed before, here or in another process, and no longer sign.
	Retired Role = "retired"
	// VerifyOnly keys come from a verification key file and not from the store.
	VerifyOnly Role = "verify-only"
)

// weights order the keys of a ring by role.
var weights = map[Role]int{Active: 0, Next: 1, Retired: 2, VerifyOnly: 3}

// Key is a key with its role. Its JSON form has no key.
type Key struct {
	PublicKey

	Role Role `json:"role"`
	// Private signs, nil if the key only verifies. A retired key may have it, for going back.
	Private *PrivateKey `json:"-"`
	// Origin says where a command has found the key, for people.
	Origin string `json:"-"`
}

// As returns the key in a role in which it only verifies.
func (k PublicKey) As(role Role) Key { return Key{PublicKey: k, Role: role} }

// As returns the key as the active or the next key.
func (k *PrivateKey) As(role Role) Key { return Key{PublicKey: k.public, Role: role, Private: k} }

// Ring is an immutable set of keys with their roles.
type Ring struct {
	// keys are sorted by weight. A key with several roles is there once for each: when it loses one
	// role, it keeps the others.
	keys []Key
	set  *KeySet
}

// NewRing returns a ring. Keys of the same role keep their order.
func NewRing(keys ...Key) *Ring {
	keys = slices.Clone(keys)
	slices.SortStableFunc(keys, func(a, b Key) int { return cmp.Compare(weights[a.Role], weights[b.Role]) })
	public := make([]PublicKey, 0, len(keys))
	for _, key := range keys {
		public = append(public, key.PublicKey)
	}
	return &Ring{keys: keys, set: NewKeySet(public...)}
}

// KeyFileRing returns the ring of a single key file, or the ring of none if wanted is nil. The further keys of the
// file verify.
func KeyFileRing(wanted *PrivateKey, further ...PublicKey) *Ring {
	var keys []Key
	if wanted != nil {
		keys = []Key{wanted.As(Active)}
		for _, key := range further {
			if key.ID != wanted.ID() {
				keys = append(keys, key.As(Retired))
			}
		}
	}
	return NewRing(keys...)
}

// Active returns the key that signs, or nil.
func (r *Ring) Active() *PrivateKey { return r.private(Active) }

// Next returns the key that will sign, or nil.
func (r *Ring) Next() *PrivateKey { return r.private(Next) }

func (r *Ring) private(role Role) *PrivateKey {
	for _, key := range r.keys {
		if key.Role == role {
			return key.Private
		}
	}
	return nil
}

// ActiveID returns the ID of the active key, or "".
func (r *Ring) ActiveID() string {
	if active := r.Active(); active != nil {
		return active.ID()
	}
	return ""
}

// All returns each key once, in its first role: active, next, retired, verify-only.
func (r *Ring) All() []Key {
	var all []Key
	seen := map[string]bool{}
	for _, key := range r.keys {
		if !seen[key.ID] {
			seen[key.ID] = true
			all = append(all, key)
		}
	}
	return all
}

// Role returns the role of a key, or "" if the ring does not have it.
func (r *Ring) Role(id string) Role {
	i := slices.IndexFunc(r.keys, func(key Key) bool { return key.ID == id })
	if i < 0 {
		return ""
	}
	return r.keys[i].Role
}

// KeySet returns the keys for verification, in the order of All.
func (r *Ring) KeySet() *KeySet { return r.set }

// without returns the keys of all other roles.
func (r *Ring) without(role Role) []Key {
	return slices.DeleteFunc(slices.Clone(r.keys), func(key Key) bool { return key.Role == role })
}

// with returns the ring with other keys.
func (r *Ring) with(keys []Key) *Ring {
	ring := NewRing(keys...)
	ring.set.removed = r.set.removed
	return ring
}

// Without returns the ring with a record of the keys that its store has removed, by ID and by digest,
// true for revoked ones. A verification key file does not bring them back.
func (r *Ring) Without(removed map[string]bool) *Ring {
	ring := r.with(r.keys)
	ring.set.removed = removed
	return ring
}

// verifyOnly returns the keys of the verification key files.
func (r *Ring) verifyOnly() []PublicKey {
	var keys []PublicKey
	for _, key := range r.keys {
		if key.Role == VerifyOnly {
			keys = append(keys, key.PublicKey)
		}
	}
	return keys
}

// withVerifyOnly returns the ring with other keys of verification key files.
func (r *Ring) withVerifyOnly(keys []PublicKey) *Ring {
	all := r.without(VerifyOnly)
	for _, key := range keys {
		_, byID := r.set.removed[key.ID]
		_, byDigest := r.set.removed[key.Digest()]
		if !byID && !byDigest {
			all = append(all, key.As(VerifyOnly))
		}
	}
	return r.with(all)
}
