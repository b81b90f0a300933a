// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"encoding/pem"
	"testing"

	"sa-controller-manager/signing"
)

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
