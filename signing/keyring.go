// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"sa-controller-manager/internal/notify"
)

// Store has the keys of a ring: a single key file, or a key ring file.
type Store interface {
	// Load returns the ring that was read last. It has an active key. Load does not block.
	Load() *Ring
	// Watch follows the store until ctx ends. It calls changed with each new ring, for Keyring.Set,
	// and refused once for each content that it refuses; the ring in use then stays. Calls do not
	// overlap.
	Watch(ctx context.Context, changed func(*Ring), refused func(error))
	// Status returns the current status. It does not block.
	Status() StoreStatus
}

// StoreStatus is the status of a store.
type StoreStatus struct {
	// Detail describes the content in use for people. It is "" for a key file that has not changed.
	Detail string
	// Refused says why the current content is not used, or is nil.
	Refused error
}

// Keyring holds the current Ring of the process: it signs with the active key, and is the KeySource
// of all keys. The ring changes when the Store has another one (Set), and with the verification key files
// (SetVerifyOnly).
//
// Readers load an immutable Ring and never wait. Writers are serialized.
type Keyring struct {
	// Changed notifies of each ring of Set.
	Changed notify.Change[*Ring]

	mu   sync.Mutex // held by writers only
	ring atomic.Pointer[Ring]
	// slots holds one entry for each signature that this process computes. More than it has
	// processors would only slow down everything else.
	slots chan struct{}
}

var (
	_ Signer    = (*Keyring)(nil)
	_ KeySource = (*Keyring)(nil)
)

// NewKeyring returns a Keyring that signs with the active key of ring.
func NewKeyring(ring *Ring, verifyOnly ...PublicKey) *Keyring {
	r := &Keyring{slots: make(chan struct{}, runtime.GOMAXPROCS(0))}
	r.ring.Store(ring.withVerifyOnly(verifyOnly))
	return r
}

// Ring returns the current ring.
func (r *Keyring) Ring() *Ring { return r.ring.Load() }

// Keys implements KeySource.
func (r *Keyring) Keys() *KeySet { return r.Ring().KeySet() }

// Sign implements Signer with the active key.
func (r *Keyring) Sign(ctx context.Context, style HeaderStyle, payload string) (header, signature string, err error) {
	active := r.Ring().Active()
	if active == nil {
		return "", "", errors.New("sign: there is no active signing key")
	}
	if active.Signer() == "" {
		select {
		case r.slots <- struct{}{}:
			defer func() { <-r.slots }()
		case <-ctx.Done():
			return "", "", ctx.Err()
		}
	}
	return active.Sign(ctx, style, payload)
}

// Set takes the ring that the store holds now. The keys of verification key files stay. Keys that the ring
// lacks no longer verify, because the store decides when a key is pruned. Calls must not overlap.
func (r *Keyring) Set(ring *Ring) {
	r.change(func(current *Ring) *Ring { return ring.withVerifyOnly(current.verifyOnly()) })
	r.Changed.Notify(r.Ring())
}

// SetVerifyOnly replaces the keys of the verification key files.
func (r *Keyring) SetVerifyOnly(keys []PublicKey) {
	r.change(func(current *Ring) *Ring { return current.withVerifyOnly(keys) })
}

// change replaces the current ring.
func (r *Keyring) change(next func(current *Ring) *Ring) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ring.Store(next(r.ring.Load()))
}
