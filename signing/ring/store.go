// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
)

// Store is the signing.Store of a ring file.
type Store struct {
	file   *reload.File[State]
	orders atomic.Pointer[Orders]
	obeyed chan struct{}
}

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
	s := &Store{file: file, obeyed: make(chan struct{}, 1)}
	s.orders.Store(&Orders{})
	return s, nil
}

// Obey changes the ring of Load as other rings want it. It does not block.
func (s *Store) Obey(orders Orders) {
	s.orders.Store(&orders)
	select {
	case s.obeyed <- struct{}{}:
	default:
	}
}

// State returns what the file has, whatever other rings want. It does not block.
func (s *Store) State() State { return s.file.Get() }

// Load implements signing.Store.
func (s *Store) Load() *signing.Ring { return s.State().Obeying(*s.orders.Load()) }

// Watch implements signing.Store.
func (s *Store) Watch(ctx context.Context, changed func(*signing.Ring), refused func(error)) {
	var calls sync.Mutex
	reload := func(State) {
		calls.Lock()
		defer calls.Unlock()
		changed(s.Load())
	}
	var obeying sync.WaitGroup
	defer obeying.Wait()
	obeying.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.obeyed:
				reload(State{})
			}
		}
	})
	s.file.Watch(ctx, reload, func(err error) {
		calls.Lock()
		defer calls.Unlock()
		refused(err)
	})
}

// Status implements signing.Store.
func (s *Store) Status() signing.StoreStatus {
	state := s.State()
	detail := fmt.Sprintf("generation %d", state.Generation)
	if _, ok := state.Next(); !ok {
		detail += ", without a next key"
	}
	return signing.StoreStatus{Detail: detail, Refused: s.file.Refused()}
}
