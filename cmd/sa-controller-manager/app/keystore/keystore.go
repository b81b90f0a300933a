// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keystore opens the key store that the flags name, for the manager and for the commands.
// Besides the flags themselves (package options) it is the only place that knows which stores there
// are.
package keystore

import (
	"fmt"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/keyfile"
	"sa-controller-manager/signing/reload"
	"sa-controller-manager/signing/ringfile"
)

// Open reads the store once. It is nil if there is none. Keys of other processes sign with sign, or
// verify only if it is nil. The error names the flag.
func Open(of options.KeyStore, sign signing.RemoteSign) (store signing.Store, err error) {
	switch of.Flag {
	case options.PrivateKeyFileFlag:
		store, err = keyfile.Open(of.Path, reload.Options{})
	case options.KeyRingFlag:
		store, err = ringfile.Open(of.Path, sign, reload.Options{})
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", of.Flag, err)
	}
	return store, nil
}
