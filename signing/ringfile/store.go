// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ringfile

import (
	"context"
	"fmt"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
	"sa-controller-manager/signing/rotation"
)

// Store is the signing.Store of a ring file.
type Store struct{ file *reload.File[rotation.State] }

var _ signing.Store = (*Store)(nil)

// Open reads the ring and prepares to follow it (package reload). As long as the Store lives, it
// refuses a change back to an earlier generation: an old copy may lack a key that has signed. Keys in
// other processes sign with sign.
func Open(path string, sign signing.RemoteSign, options reload.Options) (*Store, error) {
	var last *rotation.State // parse is never called concurrently
	file, err := reload.Open(path, func(data []byte) (rotation.State, error) {
		state, err := decode(data, sign)
		if err != nil {
			return rotation.State{}, err
		}
		if err := follows(last, state); err != nil {
			return rotation.State{}, err
		}
		last = &state
		return state, nil
	}, options)
	if err != nil {
		return nil, withHint(err)
	}
	return &Store{file: file}, nil
}

// Load implements signing.Store.
func (s *Store) Load() *signing.Ring { return s.file.Get().Ring() }

// Watch implements signing.Store.
func (s *Store) Watch(ctx context.Context, changed func(*signing.Ring), refused func(error)) {
	s.file.Watch(ctx, func(state rotation.State) { changed(state.Ring()) }, refused)
}

// Status implements signing.Store.
func (s *Store) Status() signing.StoreStatus {
	state := s.file.Get()
	status := signing.StoreStatus{Detail: fmt.Sprintf("generation %d", state.Generation), Refused: s.file.Refused()}
	if state.InProgress() {
		status.Detail += fmt.Sprintf(", a rotation to key %s is %s", state.Rotation.To, state.Phase())
	}
	return status
}
