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

// store is the signing.Store of a file.
type store struct{ file *reload.File[content] }

// content is what the file has.
type content struct {
	ring   *signing.Ring
	detail string // of the status
}

// Open reads the ring and prepares to follow it (package reload). As long as the store lives, it
// refuses a change back to an earlier generation: an old copy may lack a key that has signed. Keys in
// other processes sign with sign.
func Open(path string, sign signing.RemoteSign, options reload.Options) (signing.Store, error) {
	var last *rotation.State // parse is never called concurrently
	opened, err := open(path, func(data []byte) (content, error) {
		state, err := decode(data, sign)
		if err != nil {
			return content{}, err
		}
		if err := follows(last, state); err != nil {
			return content{}, err
		}
		last = &state
		detail := fmt.Sprintf("generation %d", state.Generation)
		if state.InProgress() {
			detail += fmt.Sprintf(", a rotation to key %s is %s", state.Rotation.To, state.Phase())
		}
		return content{state.Ring(), detail}, nil
	}, options)
	return opened, withHint(err)
}

// OpenKeyFile does the same with a PEM file that has one private key. It has no generations: the file
// says which key is wanted, and nothing about previous keys.
func OpenKeyFile(path string, options reload.Options) (signing.Store, error) {
	return open(path, func(data []byte) (content, error) {
		key, err := signing.ParsePrivateKey(data)
		if err != nil {
			return content{}, err
		}
		return content{ring: signing.NewRing(0, key.As(signing.Active))}, nil
	}, options)
}

func open(path string, parse func([]byte) (content, error), options reload.Options) (signing.Store, error) {
	file, err := reload.Open(path, parse, options)
	if err != nil {
		return nil, err
	}
	return &store{file}, nil
}

// Load implements signing.Store.
func (s *store) Load() *signing.Ring { return s.file.Get().ring }

// Watch implements signing.Store.
func (s *store) Watch(ctx context.Context, changed func(*signing.Ring), refused func(error)) {
	s.file.Watch(ctx, func(now content) { changed(now.ring) }, refused)
}

// Status implements signing.Store.
func (s *store) Status() signing.StoreStatus {
	return signing.StoreStatus{Detail: s.file.Get().detail, Refused: s.file.Refused()}
}
