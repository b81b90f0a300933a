// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import "context"

// Store is where the keys of a ring are kept: a key file, a ring file. Whoever signs asks it, and
// never which one it is.
type Store interface {
	// Load is the ring that was read last, with an active key. It does not block.
	Load() *Ring
	// Watch follows the store until ctx ends. changed is called with each new ring, which
	// Keyring.Set takes; refused once for each content that is refused, so that the ring in use
	// stays. Neither is called while another call is under way.
	Watch(ctx context.Context, changed func(*Ring), refused func(error))
	// Status is how it stands now. It does not block.
	Status() StoreStatus
}

// StoreStatus is how it stands with a store.
type StoreStatus struct {
	// Detail is what is in use, for people; "" if there is nothing to say but which key signs.
	Detail string
	// Refused is what is wrong with the present content, nil while that is in use.
	Refused error
}
