// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"context"
	"fmt"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
)

// Store is the signing.Store of a ring file.
type Store struct{ file *reload.File[State] }

var _ signing.Store = (*Store)(nil)

// Open reads the ring and prepares to follow it (package reload). As long as the store lives, it
// refuses a change back to an earlier generation: an old copy may lack a key that has signed. Keys in
// other processes sign with sign.
func Open(path string, sign signing.RemoteSign, options reload.Options) (*Store, error) {
	var last *State // parse is never called concurrently
	file, err := reload.Open(path, func(data []byte) (State, error) {
		state, err := decode(data, sign)
		if err == nil {
			err = follows(last, state)
		}
		if err != nil {
			return State{}, err
		}
		last = &state
		return state, nil
	}, options)
	if err != nil {
		return nil, withHint(err)
	}
	return &Store{file}, nil
}

// State returns what the file has besides the keys of Load, for those who need its generation or its
// past. It does not block.
func (s *Store) State() State { return s.file.Get() }

// Load implements signing.Store.
func (s *Store) Load() *signing.Ring { return s.State().Ring() }

// Watch implements signing.Store.
func (s *Store) Watch(ctx context.Context, changed func(*signing.Ring), refused func(error)) {
	s.file.Watch(ctx, func(state State) { changed(state.Ring()) }, refused)
}

// Status implements signing.Store.
func (s *Store) Status() signing.StoreStatus {
	state := s.State()
	detail := fmt.Sprintf("generation %d", state.Generation)
	if state.InProgress() {
		detail += fmt.Sprintf(", a rotation to key %s is %s", state.Rotation.To, state.Phase())
	}
	return signing.StoreStatus{Detail: detail, Refused: s.file.Refused()}
}
