// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package main

import (
	"errors"

	"go.step.sm/crypto/kms/uri"
)

func newPKCS11(*uri.URI) (backend, error) {
	return nil, errors.New("this sa-kms-signer was built without cgo, which PKCS#11 needs")
}
