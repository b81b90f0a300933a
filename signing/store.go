// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import "context"

// Store persists the keys of a ring, in a single key file or in a key ring file.
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
	// Detail describes the content in use for people. It is "" for a key file.
	Detail string
	// Refused says why the current content is not used, or is nil.
	Refused error
}
