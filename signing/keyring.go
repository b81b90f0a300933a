// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
)

// Keyring holds the keys of this process: one active key that signs, perhaps a candidate that waits for proof or a next key
// that waits for its time, and the keys that verify only. It signs with the active key and is the KeySource of all of them.
//
// What is in it comes from a key file (Offer, Activate) or from a key directory (Replace), and from the verification key files
// in both cases (SetVerifyOnly).
//
// Readers load one immutable snapshot and never wait. Changes are serialized among themselves.
type Keyring struct {
	mu       sync.Mutex // held by writers only
	snapshot atomic.Pointer[ringState]
}

var (
	_ Signer    = (*Keyring)(nil)
	_ KeySource = (*Keyring)(nil)
)

// ringState is one immutable state of the ring. keys is derived from the other fields when the state is stored.
type ringState struct {
	active     *PrivateKey
	candidate  *PrivateKey
	next       *PrivateKey // verifies like a candidate, and Activate never takes it
	former     []PublicKey // once active, latest first
	verifyOnly []PublicKey
	keys       *KeySet
}

// NewKeyring makes a ring in which active signs from now on. A ring without an active key (nil) verifies only.
func NewKeyring(active *PrivateKey, verifyOnly ...PublicKey) *Keyring {
	ring := &Keyring{}
	ring.store(ringState{active: active, verifyOnly: slices.Clone(verifyOnly)})
	return ring
}

// store publishes the next state. Keys come in the order of their weight: what signs, what will sign, what signed, the rest.
func (r *Keyring) store(next ringState) {
	var keys []PublicKey
	if next.active != nil {
		keys = append(keys, next.active.Public())
	}
	if next.candidate != nil {
		keys = append(keys, next.candidate.Public())
	}
	if next.next != nil {
		keys = append(keys, next.next.Public())
	}
	keys = append(keys, next.former...)
	keys = append(keys, next.verifyOnly...)
	next.keys = NewKeySet(keys...)
	r.snapshot.Store(&next)
}

// Active returns the key that signs, or nil.
func (r *Keyring) Active() *PrivateKey { return r.snapshot.Load().active }

// Candidate returns the key that waits for Activate, or nil. It is a Signer of its own, so that the caller can have a probe
// token signed by it.
func (r *Keyring) Candidate() *PrivateKey { return r.snapshot.Load().candidate }

// Next returns the key of a key directory that is published and does not sign yet, or nil. It is a Signer of its own.
func (r *Keyring) Next() *PrivateKey { return r.snapshot.Load().next }

// Retired returns the keys that signed before, or that a key directory calls retired. They verify only.
func (r *Keyring) Retired() []PublicKey { return slices.Clone(r.snapshot.Load().former) }

// Keys implements KeySource: the active key, the candidate or the next key, those that were active, and those that verify only.
func (r *Keyring) Keys() *KeySet { return r.snapshot.Load().keys }

// Sign implements Signer with the active key. A key that becomes active meanwhile signs from the next call on.
func (r *Keyring) Sign(ctx context.Context, style HeaderStyle, payload string) (header, signature string, err error) {
	active := r.Active()
	if active == nil {
		return "", "", errors.New("sign: there is no active signing key")
	}
	return active.Sign(ctx, style, payload)
}

// Offer makes key the candidate in place of any other. Offering the active key again withdraws the candidate, because that is
// what a key file says that was put back; so does offering nil. A candidate that gives way verifies no longer: no token but
// probes ever bore its key ID.
func (r *Keyring) Offer(key *PrivateKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := *r.snapshot.Load()
	next.candidate = key
	if key != nil && next.active != nil && key.ID() == next.active.ID() {
		next.candidate = nil
	}
	r.store(next)
}

// Activate makes the candidate with this key ID the active key and reports whether it did. The former active key stays a
// verification key. It returns false when the candidate is another one by now: proof was found for a key that has been
// withdrawn or replaced, and says nothing about the present one.
func (r *Keyring) Activate(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := *r.snapshot.Load()
	if next.candidate == nil || next.candidate.ID() != id {
		return false
	}
	if next.active != nil {
		// A key set, so that going to and fro between two keys does not pile them up.
		next.former = NewKeySet(append([]PublicKey{next.active.Public()}, next.former...)...).All()
	}
	next.active, next.candidate = next.candidate, nil
	r.store(next)
	return true
}

// Contents are the keys of a key directory.
type Contents struct {
	Active  *PrivateKey // never nil
	Next    *PrivateKey // nil unless a rotation has published one
	Retired []PublicKey
}

// Replace puts the keys of a directory in place of all but the verification keys of SetVerifyOnly. What the directory does not
// name is not trusted any more: it decides when a key is pruned.
func (r *Keyring) Replace(contents Contents) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store(ringState{
		active:     contents.Active,
		next:       contents.Next,
		former:     slices.Clone(contents.Retired),
		verifyOnly: r.snapshot.Load().verifyOnly,
	})
}

// SetVerifyOnly replaces the keys that were never active here, such as those of the verification key files.
func (r *Keyring) SetVerifyOnly(keys []PublicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := *r.snapshot.Load()
	next.verifyOnly = slices.Clone(keys)
	r.store(next)
}
