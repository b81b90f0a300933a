// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"testing"

	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

func BenchmarkP256(b *testing.B) { benchmarkLegacy(b, testkeys.P256()) }

func BenchmarkRSA2048(b *testing.B) { benchmarkLegacy(b, testkeys.RSA2048()) }

// benchmarkLegacy compares a whole legacy token with the signature alone, made by the standard library over the same bytes. The
// difference is what claims, JSON and base64 cost.
func benchmarkLegacy(b *testing.B, pem []byte) {
	issuer := tokens.NewIssuer(signingKey(b, pem), tokens.CompatClaims)
	b.Run("legacy token", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := issuer.Legacy(b.Context(), account, secretName); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare signature", func(b *testing.B) {
		token, err := issuer.Legacy(b.Context(), account, secretName)
		if err != nil {
			b.Fatal(err)
		}
		key, text := rawKey(b, pem), []byte(token[:strings.LastIndex(token, ".")])
		b.ReportAllocs()
		for b.Loop() {
			digest := sha256.Sum256(text)
			if _, err := key.Sign(rand.Reader, digest[:], crypto.SHA256); err != nil {
				b.Fatal(err)
			}
		}
	})
}
