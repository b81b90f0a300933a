// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"testing"
)

// TestSpoiledContent: what is to be refused is bad, and what is to be taken is good and new,
// however often that was done before.
func TestSpoiledContent(t *testing.T) {
	t.Parallel()
	certificate, key, err := selfSigned()
	if err != nil {
		t.Fatal(err)
	}
	for range 200 { // as in an hour
		next := another(key)
		if bytes.Equal(next, key) {
			t.Fatal("another key file has the same bytes")
		}
		key = next
	}
	if _, err := tls.X509KeyPair(certificate, key); err != nil {
		t.Errorf("another key file is no good: %v", err)
	}
	for name, how := range map[string]func([]byte) []byte{"garbage": garbage, "truncated": truncated} {
		for what, good := range map[string][]byte{"certificate": certificate, "key": key} {
			if block, _ := pem.Decode(how(good)); block != nil {
				t.Errorf("a %s %s is still PEM", name, what)
			}
			if bytes.Equal(how(good), how(good)) {
				t.Errorf("a %s %s is the same twice", name, what)
			}
		}
	}
}
