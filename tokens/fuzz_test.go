// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"errors"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

func addTokens(f *testing.F) {
	f.Helper()
	for _, token := range sortedTokens(f) {
		f.Add(token)
	}
	for _, kind := range []string{"legacy", "bound"} {
		for _, v := range vectors(f, kind) {
			f.Add(v.Token)
		}
	}
	f.Add(unsigned(`{"alg":"RS256"}`, legacyPayload))
	f.Add(unsigned(`{"alg":"RS256","kid":"a","kid":"b"}`, `{"\u0073ub":1}`))
	f.Add(strings.Repeat(".", 100))
	f.Add("..")
}

// FuzzVerifyLegacy looks for a forgery. Nobody can make a signature by chance, so a token that
// verifies must bear the header and payload of one that the keys signed: one of the golden tokens,
// or one that the seeds were cut from.
func FuzzVerifyLegacy(f *testing.F) {
	addTokens(f)
	signed := map[string]bool{}
	for _, v := range vectors(f, "legacy") {
		signed[v.Token[:strings.LastIndex(v.Token, ".")]] = true
	}
	for _, key := range []*signing.PrivateKey{testkeys.Parse(testkeys.RSA2048()), testkeys.Parse(testkeys.P256())} {
		token, err := tokens.NewIssuer(key, tokens.CompatClaims).Legacy(f.Context(), account, secretName)
		testutil.Must(f, err)
		f.Add(token)
		signed[token[:strings.LastIndex(token, ".")]] = true
	}
	keys := ring()
	f.Fuzz(func(t *testing.T, token string) {
		got, err := tokens.VerifyLegacy(token, keys)
		if err == nil {
			if !signed[token[:strings.LastIndex(token, ".")]] {
				t.Fatal("a forged token verifies")
			}
			return
		}
		known := false
		for _, sentinel := range []error{tokens.ErrMalformed, tokens.ErrUnknownKey, tokens.ErrBadSignature, tokens.ErrNotLegacy} {
			known = known || errors.Is(err, sentinel)
		}
		if !known || len(err.Error()) > 120 || got != (tokens.Token{}) {
			t.Fatalf("VerifyLegacy returned %v, %v", got, err)
		}
	})
}
