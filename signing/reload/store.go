// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reload

import "sa-controller-manager/signing"

// keyFile is the signing.Store of a PEM file.
type keyFile struct{ *File[*signing.Ring] }

// OpenKeyFile opens a PEM file whose first private key signs. All others verify, as kube-apiserver reads the file.
func OpenKeyFile(path string, options Options) (signing.Store, error) {
	file, err := Open(path, func(data []byte) (*signing.Ring, error) {
		key, err := signing.ParsePrivateKey(data)
		further, _ := signing.ParsePublicKeys(data) // the first one at least, or err says why not
		return signing.KeyFileRing(key, further...), err
	}, options)
	if err != nil {
		return nil, err
	}
	return keyFile{file}, nil
}

// Load implements signing.Store.
func (k keyFile) Load() *signing.Ring { return k.Get() }

// Status implements signing.Store.
func (k keyFile) Status() signing.StoreStatus { return signing.StoreStatus{Refused: k.Refused()} }
