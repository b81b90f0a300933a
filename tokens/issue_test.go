// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// fakeSigner answers with fixed segments and remembers what it was asked.
type fakeSigner struct {
	header, signature string
	err               error
	style             signing.HeaderStyle
	calls             int
}

func (s *fakeSigner) Sign(_ context.Context, style signing.HeaderStyle, _ string) (string, string, error) {
	s.style, s.calls = style, s.calls+1
	return s.header, s.signature, s.err
}

// TestUniqueClaims: what the style adds is iat and jti and nothing else, and it takes no token its
// validity.
func TestUniqueClaims(t *testing.T) {
	t.Parallel()
	key := testkeys.Parse(testkeys.RSA2048())
	now := time.Unix(1_790_000_000, 700_000_000)
	issuer := func(style tokens.ClaimStyle) *tokens.Issuer {
		return tokens.NewIssuer(key, style, tokens.WithClock(clocktesting.NewFakePassiveClock(now)),
			tokens.WithTokenIDs(func() string { return "an-id" }))
	}
	unique, err := issuer(tokens.UniqueClaims).Legacy(t.Context(), account, secretName)
	testutil.Must(t, err)
	compat, err := issuer(tokens.CompatClaims).Legacy(t.Context(), account, secretName)
	testutil.Must(t, err)
	uniqueHeader, uniquePayload := decoded(t, unique)
	compatHeader, compatPayload := decoded(t, compat)
	if diff := cmp.Diff(compatHeader, uniqueHeader); diff != "" {
		t.Errorf("header: -compat +unique:\n%s", diff)
	}
	var got, want map[string]any
	testutil.Must(t, errors.Join(json.Unmarshal([]byte(uniquePayload), &got), json.Unmarshal([]byte(compatPayload), &want)))
	want["iat"], want["jti"] = float64(1_790_000_000), "an-id"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims: -want +got:\n%s", diff)
	}
	verified, err := tokens.VerifyLegacy(unique, signing.NewKeyring(signing.KeyFileRing(key)))
	if err != nil {
		t.Error(err)
	}
	if mismatch := verified.Mismatch(account, secretName); mismatch != "" {
		t.Error(mismatch)
	}
}

// TestRepeatedTokens pins the reason for the two styles: compat tokens come back with the Secret's
// name, unique ones do not, because each has a UUID.
func TestRepeatedTokens(t *testing.T) {
	t.Parallel()
	key := testkeys.Parse(testkeys.RSA2048())
	uuid := regexp.MustCompile(`"jti":"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"`)
	for style, wantSame := range map[tokens.ClaimStyle]bool{tokens.CompatClaims: true, tokens.UniqueClaims: false} {
		issuer := tokens.NewIssuer(key, style)
		first, err := issuer.Legacy(t.Context(), account, secretName)
		testutil.Must(t, err)
		second, err := issuer.Legacy(t.Context(), account, secretName)
		testutil.Must(t, err)
		if same := first == second; same != wantSame {
			t.Errorf("%s: two tokens for the same Secret are equal: %v, want %v", style, same, wantSame)
		}
		_, payload := decoded(t, second)
		if hasID := uuid.MatchString(payload); hasID == wantSame {
			t.Errorf("%s: a version 4 UUID as jti: %v, want %v", style, hasID, !wantSame)
		}
	}
}

func TestLegacyRefuses(t *testing.T) {
	t.Parallel()
	errBoom := errors.New("boom")
	good := fakeSigner{header: "e30", signature: "c2ln"}
	with := func(change func(*tokens.Account)) tokens.Account {
		changed := account
		change(&changed)
		return changed
	}
	cases := map[string]struct {
		reason  string
		signer  fakeSigner
		style   tokens.ClaimStyle
		account tokens.Account
		secret  string
		want    string
		is      error
	}{
		"no namespace": {
			"the apiserver refuses an empty claim", good, tokens.CompatClaims, with(func(a *tokens.Account) { a.Namespace = "" }), secretName,
			"the namespace is empty", nil,
		},
		"no name": {
			"the apiserver refuses an empty claim", good, tokens.CompatClaims, with(func(a *tokens.Account) { a.Name = "" }), secretName,
			"the service account name is empty", nil,
		},
		"no UID": {
			"the token would fit every account of the name", good, tokens.UniqueClaims, with(func(a *tokens.Account) { a.UID = "" }), secretName,
			"the service account UID is empty", nil,
		},
		"no secret": {"nothing could revoke it", good, tokens.CompatClaims, account, "", "the secret name is empty", nil},
		"colon": {
			"the subject would be ambiguous", good, tokens.CompatClaims, with(func(a *tokens.Account) { a.Namespace = "a:b" }), secretName,
			"contains a colon", nil,
		},
		"colon in name": {
			"the subject would be ambiguous", good, tokens.CompatClaims, with(func(a *tokens.Account) { a.Name = "b:c" }), secretName,
			"contains a colon", nil,
		},
		"style":    {"a typing mistake must not pick a style", good, "Compat", account, secretName, `unknown claim style "Compat"`, nil},
		"no style": {"nor a forgotten one", good, "", account, secretName, `unknown claim style ""`, nil},
		"signer error": {
			"it is passed on", fakeSigner{header: "e30", signature: "c2ln", err: errBoom}, tokens.CompatClaims, account, secretName,
			"sign claims: boom", errBoom,
		},
		"no header":    {"half a token is none", fakeSigner{signature: "c2ln"}, tokens.CompatClaims, account, secretName, "empty segment", nil},
		"no signature": {"half a token is none", fakeSigner{header: "e30"}, tokens.CompatClaims, account, secretName, "empty segment", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			signer := tc.signer
			token, err := tokens.NewIssuer(&signer, tc.style).Legacy(t.Context(), tc.account, tc.secret)
			if token != "" || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: Legacy returned a token of %d bytes and error %v, want an error with %q", tc.reason, len(token), err, tc.want)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%s: error %v does not wrap %v", tc.reason, err, tc.is)
			}
			if tc.signer == good && signer.calls != 0 {
				t.Errorf("%s: the signer was asked for a token that must not be made", tc.reason)
			}
		})
	}
}

func TestBoundRefuses(t *testing.T) {
	t.Parallel()
	good := tokens.BoundRequest{Issuer: "https://issuer", Account: account, Audiences: []string{"probe"}, Lifetime: time.Minute}
	cases := map[string]struct {
		reason string
		change func(*tokens.BoundRequest)
		want   string
	}{
		"no issuer": {"no authenticator would take it", func(r *tokens.BoundRequest) { r.Issuer = "" }, "the issuer is empty"},
		"legacy issuer": {
			"it would be taken for a legacy token", func(r *tokens.BoundRequest) { r.Issuer = tokens.LegacyIssuer }, "marks legacy tokens",
		},
		"no audience": {
			"it would be admitted everywhere", func(r *tokens.BoundRequest) { r.Audiences = nil }, "an audience is missing or empty",
		},
		"empty audience": {"the same", func(r *tokens.BoundRequest) { r.Audiences = []string{"a", ""} }, "an audience is missing or empty"},
		"no lifetime":    {"it would have expired", func(r *tokens.BoundRequest) { r.Lifetime = 0 }, "less than a second"},
		"negative":       {"it would have expired", func(r *tokens.BoundRequest) { r.Lifetime = -time.Hour }, "less than a second"},
		"no account":     {"it would name nobody", func(r *tokens.BoundRequest) { r.Account = tokens.Account{} }, "the namespace is empty"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			signer := &fakeSigner{header: "e30", signature: "c2ln"}
			issuer := tokens.NewIssuer(signer, tokens.CompatClaims)
			if _, err := issuer.Bound(t.Context(), good); err != nil || signer.style != signing.JWTHeader {
				t.Fatalf("the good request got %v with header style %v", err, signer.style)
			}
			request := good
			tc.change(&request)
			token, err := issuer.Bound(t.Context(), request)
			if token != "" || err == nil || !strings.Contains(err.Error(), tc.want) || signer.calls != 1 {
				t.Errorf("%s: Bound returned a token of %d bytes and error %v, want an error with %q", tc.reason, len(token), err, tc.want)
			}
		})
	}
}
