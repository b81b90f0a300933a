// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keyfile implements signing.Store with a PEM file that has one private key, and follows
// changes of the file. It has no generations: the file says which key is wanted, and nothing about
// previous keys.
package keyfile

import (
	"context"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
)

// Store reads a key file.
type Store struct {
	file *reload.File[*signing.PrivateKey]
}

var _ signing.Store = (*Store)(nil)

// Open reads the key and prepares to follow the file.
func Open(path string, options reload.Options) (*Store, error) {
	file, err := reload.Open(path, signing.ParsePrivateKey, options)
	if err != nil {
		return nil, err
	}
	return &Store{file: file}, nil
}

// Load implements signing.Store.
func (s *Store) Load() *signing.Ring { return ringOf(s.file.Get()) }

// Watch implements signing.Store.
func (s *Store) Watch(ctx context.Context, changed func(*signing.Ring), refused func(error)) {
	s.file.Watch(ctx, func(key *signing.PrivateKey) { changed(ringOf(key)) }, refused)
}

// Status implements signing.Store.
func (s *Store) Status() signing.StoreStatus { return signing.StoreStatus{Refused: s.file.Refused()} }

func ringOf(key *signing.PrivateKey) *signing.Ring { return signing.NewRing(0, key.As(signing.Active)) }
