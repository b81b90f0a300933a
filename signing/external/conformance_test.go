// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"strings"
	"testing"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
)

// TestSocketConforms runs the suite on the socket's client, with each kind of key behind the
// socket.
func TestSocketConforms(t *testing.T) {
	t.Parallel()
	for name, pem := range map[string][]byte{
		"RSA 2048": testkeys.RSA2048(),
		"RSA 4096": testkeys.RSA4096(),
		"P-256":    testkeys.P256(),
		"P-384":    testkeys.P384(),
		"P-521":    testkeys.P521(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signertest.Run(t, func(t *testing.T) signertest.Subject {
				ring := signing.NewKeyring(signing.KeyFileRing(testkeys.Parse(pem)), testkeys.Parse(testkeys.RSA2048Other()).Public())
				config := configFor(t, ring)
				serve(t, config)
				remote := connect(t, config.Path)
				return signertest.Subject{
					Signer: remote,
					Keys:   remote,
					Styles: []signing.HeaderStyle{signing.JWTHeader},
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
