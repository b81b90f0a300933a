// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"

	"sa-controller-manager/signing"
)

// store is the signing.Store of a file.
type store struct{ file *File[stored] }

// stored is what the file has.
type stored struct {
	ring   *signing.Ring
	detail string // of the status
}

// OpenStore opens a file whose content is a ring. Parse also returns the detail of the store's status.
func OpenStore(path string, parse func([]byte) (ring *signing.Ring, detail string, err error), options Options) (signing.Store, error) {
	file, err := Open(path, func(data []byte) (stored, error) {
		ring, detail, err := parse(data)
		return stored{ring, detail}, err
	}, options)
	if err != nil {
		return nil, err
	}
	return &store{file}, nil
}

// OpenKeyFile opens a PEM file that has one private key. It has no generations: the file says which
// key is wanted, and nothing about previous keys.
func OpenKeyFile(path string, options Options) (signing.Store, error) {
	return OpenStore(path, func(data []byte) (*signing.Ring, string, error) {
		key, err := signing.ParsePrivateKey(data)
		if err != nil {
			return nil, "", err
		}
		return signing.NewRing(0, key.As(signing.Active)), "", nil
	}, options)
}

// Load implements signing.Store.
func (s *store) Load() *signing.Ring { return s.file.Get().ring }

// Watch implements signing.Store.
func (s *store) Watch(ctx context.Context, changed func(*signing.Ring), refused func(error)) {
	s.file.Watch(ctx, func(now stored) { changed(now.ring) }, refused)
}

// Status implements signing.Store.
func (s *store) Status() signing.StoreStatus {
	return signing.StoreStatus{Detail: s.file.Get().detail, Refused: s.file.Refused()}
}
