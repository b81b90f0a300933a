// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package main

import (
	"crypto"
	"errors"

	"go.step.sm/crypto/kms/uri"
)

func openPKCS11(*uri.URI, string) (crypto.Signer, error) {
	return nil, errors.New("this sa-kms-signer was built without cgo, which PKCS#11 needs")
}
