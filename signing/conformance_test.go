// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"strings"
	"testing"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
)

var everyKind = map[string][]byte{
	"RSA 2048": testkeys.RSA2048(),
	"RSA 3072": testkeys.RSA3072(),
	"RSA 4096": testkeys.RSA4096(),
	"P-256":    testkeys.P256(),
	"P-384":    testkeys.P384(),
	"P-521":    testkeys.P521(),
}

// TestKeyringConforms runs the suite on a ring of each kind of key that rotates to another kind.
func TestKeyringConforms(t *testing.T) {
	t.Parallel()
	for name, pem := range everyKind {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signertest.Run(t, func(*testing.T) signertest.Subject {
				ring := signing.NewKeyring(signing.KeyFileRing(testkeys.Parse(pem)), testkeys.Parse(testkeys.RSA2048Other()).Public())
				return signertest.Subject{
					Signer: ring,
					Keys:   ring,
					Styles: []signing.HeaderStyle{signing.LegacyHeader, signing.JWTHeader},
					Secret: strings.Split(strings.TrimSpace(string(pem)), "\n"),
					Rotate: func(t *testing.T) {
						next := testkeys.Parse(testkeys.P256Other())
						ring.Set(signing.KeyFileRing(next))
						if !ring.Activate(next.ID()) {
							t.Fatal("the next key was not activated")
						}
					},
				}
			})
		})
	}
}
