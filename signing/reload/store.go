// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"

	"sa-controller-manager/signing"
)

// keyFile is the signing.Store of a PEM file.
type keyFile struct {
	*File[*signing.Ring]
	opened *signing.Ring
}

// OpenKeyFile opens a PEM file whose first private key signs. All others verify, as kube-apiserver reads the file.
// As in kube-controller-manager, the keys that it has now are those until the process ends: kube-apiserver reads its
// key files when it starts, too, and the file says nothing about previous keys.
func OpenKeyFile(path string, options Options) (signing.Store, error) {
	file, err := Open(path, func(data []byte) (*signing.Ring, error) {
		key, err := signing.ParsePrivateKey(data)
		further, _ := signing.ParsePublicKeys(data) // the first one at least, or err says why not
		return signing.KeyFileRing(key, further...), err
	}, options)
	if err != nil {
		return nil, err
	}
	return keyFile{file, file.Get()}, nil
}

// Load implements signing.Store.
func (k keyFile) Load() *signing.Ring { return k.opened }

// Watch implements signing.Store. It follows the file for Status alone.
func (k keyFile) Watch(ctx context.Context, _ func(*signing.Ring), refused func(error)) {
	k.File.Watch(ctx, func(*signing.Ring) {}, refused)
}

// Status implements signing.Store.
func (k keyFile) Status() signing.StoreStatus {
	status := signing.StoreStatus{Refused: k.Refused()}
	if id := k.Get().ActiveID(); id != k.opened.ActiveID() {
		status.Detail = "the file has key " + id + " now, which signs after a restart"
	}
	return status
}
