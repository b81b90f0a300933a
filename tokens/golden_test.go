// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// TestLegacyMatchesUpstream: for the same key, account and Secret the token is the one that
// kube-controller-manager writes. With RSA that means the same bytes; an ECDSA signature is
// different each time, so there header and payload are the same bytes.
func TestLegacyMatchesUpstream(t *testing.T) {
	t.Parallel()
	keys := namedKeys()
	for _, v := range vectors(t, "legacy") {
		t.Run(v.Key+" "+v.Name, func(t *testing.T) {
			key := keys[v.Key]
			token, err := tokens.NewIssuer(key, tokens.CompatClaims).Legacy(t.Context(), v.account(), v.Secret)
			testutil.Must(t, err)
			got, want := token, v.Token
			if key.Public().Algorithm != "RS256" {
				got, want = got[:strings.LastIndex(got, ".")], want[:strings.LastIndex(want, ".")]
			}
			testutil.Check(t, "upstream's and ours", want, got)
			for whose, token := range map[string]string{"ours": token, "upstream's": v.Token} {
				verified, err := tokens.VerifyLegacy(token, signing.NewKeyring(signing.KeyFileRing(key)))
				if err != nil {
					t.Errorf("%s does not verify: %v", whose, err)
				}
				testutil.Check(t, whose, "", verified.Mismatch(v.account(), v.Secret))
			}
		})
	}
}

// TestBoundMatchesUpstream: the payload is the bytes that kube-apiserver signs for a TokenRequest
// at the same moment. The header differs in typ alone.
func TestBoundMatchesUpstream(t *testing.T) {
	t.Parallel()
	keys := namedKeys()
	for _, v := range vectors(t, "bound") {
		t.Run(v.Key+" "+v.Name, func(t *testing.T) {
			wantHeader, wantPayload := decoded(t, v.Token)
			var varying struct {
				IssuedAt int64  `json:"iat"`
				ID       string `json:"jti"`
			}
			testutil.Must(t, json.Unmarshal([]byte(wantPayload), &varying))
			issuer := tokens.NewIssuer(keys[v.Key], tokens.CompatClaims,
				tokens.WithClock(clocktesting.NewFakePassiveClock(time.Unix(varying.IssuedAt, 999_999_999))),
				tokens.WithTokenIDs(func() string { return varying.ID }))
			token, err := issuer.Bound(t.Context(), tokens.BoundRequest{
				Issuer:    v.Issuer,
				Account:   v.account(),
				Audiences: v.Audiences,
				Lifetime:  time.Duration(v.LifetimeSeconds) * time.Second,
			})
			testutil.Must(t, err)
			gotHeader, gotPayload := decoded(t, token)
			testutil.Check(t, "payload", wantPayload, gotPayload)
			testutil.Check(t, "header", strings.TrimSuffix(wantHeader, "}")+`,"typ":"JWT"}`, gotHeader)
		})
	}
}
