// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Keyring is the ring of this process, which changes: it signs with the active key of the present
// Ring, and is the KeySource of all its keys. What is in it comes from a Store (Set), from proof
// (Activate) and from the verification key files (SetVerifyOnly).
//
// Readers load one immutable Ring and never wait. Changes are serialized among themselves.
type Keyring struct {
	mu   sync.Mutex // held by writers only
	ring atomic.Pointer[Ring]
}

var (
	_ Signer    = (*Keyring)(nil)
	_ KeySource = (*Keyring)(nil)
)

// NewKeyring begins with ring, whose active key signs from now on.
func NewKeyring(ring *Ring, verifyOnly ...PublicKey) *Keyring {
	r := &Keyring{}
	r.ring.Store(ring.withVerifyOnly(verifyOnly))
	return r
}

// Ring is the present one.
func (r *Keyring) Ring() *Ring { return r.ring.Load() }

// Keys implements KeySource.
func (r *Keyring) Keys() *KeySet { return r.Ring().KeySet() }

// Sign implements Signer with the active key. A key that becomes active meanwhile signs from the
// next call on.
func (r *Keyring) Sign(ctx context.Context, style HeaderStyle, payload string) (header, signature string, err error) {
	active := r.Ring().Active()
	if active == nil {
		return "", "", errors.New("sign: there is no active signing key")
	}
	return active.Sign(ctx, style, payload)
}

// Set takes what a store holds now. The keys of verification key files stay.
//
// A ring with a generation replaces the present one: what it does not name is not trusted any more,
// because its store decides when a key is pruned. One without says only which key is wanted. If
// that is not the active key it becomes the next one, in place of any other: kube-apiserver reads
// its key files once, so a new key file must not turn into tokens nobody accepts. If it is, the
// next key is withdrawn, and verifies no longer: no token but probes ever bore its key ID.
func (r *Keyring) Set(ring *Ring) {
	r.change(func(present *Ring) *Ring {
		if ring.Generation() == 0 {
			return present.withNext(ring.Active())
		}
		return ring.withVerifyOnly(present.verifyOnly())
	})
}

// Activate makes the next key with this ID the active one and reports whether it did. The previous
// one is retired: it goes on verifying for the life of the process, because tokens that bear its ID
// live on.
//
// It returns false when the next key is another one by now: proof was found for a key that has been
// withdrawn or replaced, and says nothing about the present one. So it does when the store decides
// which key signs.
func (r *Keyring) Activate(id string) bool {
	activated := false
	r.change(func(present *Ring) *Ring {
		next := present.Next()
		if activated = present.ProofActivates() && next != nil && next.ID() == id; activated {
			return present.activated()
		}
		return present
	})
	return activated
}

// SetVerifyOnly replaces the keys of the verification key files.
func (r *Keyring) SetVerifyOnly(keys []PublicKey) {
	r.change(func(present *Ring) *Ring { return present.withVerifyOnly(keys) })
}

func (r *Keyring) change(next func(present *Ring) *Ring) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring.Store(next(r.ring.Load()))
}
