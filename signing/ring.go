// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// Role says what a key of a ring is for. Keys of every role verify.
type Role string

const (
	// Active signs. A ring has one such key at most.
	Active Role = "active"
	// Next is published and does not sign yet. A ring has one such key at most.
	Next Role = "next"
	// Retired signed before, here or elsewhere, and signs no more.
	Retired Role = "retired"
	// VerifyOnly is the role of what a verification key file holds: it is no key of the store,
	// which says nothing of it.
	VerifyOnly Role = "verify-only"
)

// weights order the keys of a ring: what signs, what will sign, what signed, the rest.
var weights = map[Role]int{Active: 0, Next: 1, Retired: 2, VerifyOnly: 3}

// Key is a key of a ring.
type Key struct {
	PublicKey

	Role Role
	// Private is what signs. Only the active and the next key have it.
	Private *PrivateKey
}

// As is the key in a role in which it verifies only.
func (k PublicKey) As(role Role) Key { return Key{PublicKey: k, Role: role} }

// As is the key as the active or the next one.
func (k *PrivateKey) As(role Role) Key { return Key{PublicKey: k.public, Role: role, Private: k} }

// Ring is all keys of one moment with their roles. It is immutable.
type Ring struct {
	generation int64
	// keys are in the order of their weight. One that has several roles is there several times: it
	// goes on in the lighter role when it loses the other one.
	keys []Key
	set  *KeySet
	past Past
}

// Past is what a store that counts generations knows of those before the present one.
type Past struct {
	// History are the versions that the ring has come from, with its own at the end.
	History []string
	// Pruned are the IDs of keys that are gone and may have signed, Withdrawn of those that never did.
	Pruned, Withdrawn []string
}

// NewRing makes a ring. Generation is that of the store's content, 0 for a store that counts none.
// Retired keys come in the order given.
func NewRing(generation int64, keys ...Key) *Ring {
	keys = slices.Clone(keys)
	slices.SortStableFunc(keys, func(a, b Key) int { return cmp.Compare(weights[a.Role], weights[b.Role]) })
	public := make([]PublicKey, 0, len(keys))
	for _, key := range keys {
		public = append(public, key.PublicKey)
	}
	return &Ring{generation: generation, keys: keys, set: NewKeySet(public...)}
}

// WithPast is the ring with its past.
func (r *Ring) WithPast(past Past) *Ring {
	with := *r
	with.past = past
	return &with
}

// Past is empty for a store that counts no generations.
func (r *Ring) Past() Past { return r.past }

// Version is the same for two rings only if they have the same keys in the same roles and the same
// history. Of a store that has none the keys and roles decide.
func (r *Ring) Version() string {
	if n := len(r.past.History); n > 0 {
		return r.past.History[n-1]
	}
	return fmt.Sprintf("%d:%s", r.generation, r.Hash())
}

// Generation is that of the store's content. It grows with every change, and is 0 for a store that
// counts none: a key file has one key and no history.
func (r *Ring) Generation() int64 { return r.generation }

// Active is the key that signs, or nil.
func (r *Ring) Active() *PrivateKey { return r.private(Active) }

// Next is the key that will sign, or nil. It is a Signer of its own, so that the caller can have a
// token signed by it to see whether kube-apiserver accepts that.
func (r *Ring) Next() *PrivateKey { return r.private(Next) }

func (r *Ring) private(role Role) *PrivateKey {
	for _, key := range r.keys {
		if key.Role == role {
			return key.Private
		}
	}
	return nil
}

// ActiveID is the key ID of the active key, "" if there is none.
func (r *Ring) ActiveID() string {
	if active := r.Active(); active != nil {
		return active.ID()
	}
	return ""
}

// ProofActivates reports whether the next key becomes active as soon as kube-apiserver accepts it.
// It does if the store counts no generations: then nobody can say there that it is to sign.
func (r *Ring) ProofActivates() bool { return r.generation == 0 }

// All are the keys in the order of their weight, each once.
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

// Role is what a key ID is for, "" if the ring does not have it.
func (r *Ring) Role(id string) Role {
	i := slices.IndexFunc(r.keys, func(key Key) bool { return key.ID == id })
	if i < 0 {
		return ""
	}
	return r.keys[i].Role
}

// KeySet are the keys as they are looked up, in the order of their weight.
func (r *Ring) KeySet() *KeySet { return r.set }

// Hash is the same for rings whose stores have the same keys in the same roles, whatever their
// order and their history. It tells nothing of the keys.
func (r *Ring) Hash() string {
	var lines []string
	for _, key := range r.All() {
		if key.Role != VerifyOnly {
			lines = append(lines, fmt.Sprintf("%s %s\n", key.ID, key.Role))
		}
	}
	slices.Sort(lines)
	digest := sha256.Sum256([]byte(strings.Join(lines, "")))
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

// without are the keys but for those of a role.
func (r *Ring) without(role Role) []Key {
	return slices.DeleteFunc(slices.Clone(r.keys), func(key Key) bool { return key.Role == role })
}

// withNext has key be the next one in place of any other. The active key cannot be; nor can nil.
func (r *Ring) withNext(key *PrivateKey) *Ring {
	keys := r.without(Next)
	if active := r.Active(); key != nil && (active == nil || key.ID() != active.ID()) {
		keys = append(keys, key.As(Next))
	}
	return r.with(keys)
}

// with is the ring with other keys.
func (r *Ring) with(keys []Key) *Ring { return NewRing(r.generation, keys...).WithPast(r.past) }

// activated has the next key be the active one. The previous one is the first of the retired keys.
func (r *Ring) activated() *Ring {
	next := r.Next()
	keys := []Key{next.As(Active)}
	if previous := r.Active(); previous != nil {
		keys = append(keys, previous.Public().As(Retired))
	}
	for _, key := range r.keys {
		// Or going to and fro between two keys would pile them up.
		if key.Role == VerifyOnly || (key.Role == Retired && !slices.ContainsFunc(keys, func(k Key) bool { return k.ID == key.ID })) {
			keys = append(keys, key)
		}
	}
	return r.with(keys)
}

// verifyOnly are what verification key files hold.
func (r *Ring) verifyOnly() []PublicKey {
	var keys []PublicKey
	for _, key := range r.keys {
		if key.Role == VerifyOnly {
			keys = append(keys, key.PublicKey)
		}
	}
	return keys
}

// withVerifyOnly has keys be what verification key files hold.
func (r *Ring) withVerifyOnly(keys []PublicKey) *Ring {
	all := r.without(VerifyOnly)
	for _, key := range keys {
		all = append(all, key.As(VerifyOnly))
	}
	return r.with(all)
}
