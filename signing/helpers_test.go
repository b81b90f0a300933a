// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"crypto"
	"encoding/pem"
	"testing"

	"sa-controller-manager/signing"
)

// private parses a test key that must be good.
func private(tb testing.TB, data []byte) *signing.PrivateKey {
	tb.Helper()
	key, err := signing.ParsePrivateKey(data)
	if err != nil {
		tb.Fatalf("test key: %v", err)
	}
	return key
}

// rawPublic returns the public half as the standard library has it.
func rawPublic(tb testing.TB, data []byte) crypto.PublicKey {
	tb.Helper()
	return private(tb, data).Public().Key
}

// der returns the content of the first PEM block.
func der(tb testing.TB, data []byte) []byte {
	tb.Helper()
	block, _ := pem.Decode(data)
	if block == nil {
		tb.Fatal("test file has no PEM block")
	}
	return block.Bytes
}

func ids(keys []signing.PublicKey) []string {
	var all []string
	for _, key := range keys {
		all = append(all, key.ID)
	}
	return all
}
