// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

func second(n int64) time.Time { return time.Unix(n, 0).UTC() }

func TestExamine(t *testing.T) {
	t.Parallel()
	const header = `{"alg":"ES256","kid":"k"}`
	bound := tokens.Token{KeyID: "k", Algorithm: "ES256", Issuer: "https://x", Subject: account.Subject()}
	legacy := tokens.Token{
		KeyID: "k", Algorithm: "ES256", Issuer: tokens.LegacyIssuer, Subject: account.Subject(),
		Namespace: account.Namespace, AccountName: account.Name, AccountUID: account.UID, SecretName: secretName,
	}
	const iss = `{"iss":"https://x","sub":"system:serviceaccount:demo:builder",`
	const who = `"kubernetes.io":{"namespace":"demo","serviceaccount":{"name":"builder","uid":"0e0a3f5c-6d3c-4a0a-9a5f-6f6f1f1f2f2f"}`
	cases := map[string]struct {
		reason, claims string
		want           tokens.Examination
	}{
		"legacy": {"no time, no audience", legacyPayload, tokens.Examination{Token: legacy, Form: tokens.LegacyForm, Account: account}},
		"bound to a Pod": {"as kubelet mounts it; the node is for reading only",
			iss + `"aud":["a","b"],"exp":30,"nbf":10,"iat":10,"jti":"j",` + who +
				`,"pod":{"name":"p","uid":"pu"},"node":{"name":"n","uid":"nu"},"warnafter":20}}`,
			tokens.Examination{
				Token: bound, Form: tokens.BoundForm, Account: account, Audiences: []string{"a", "b"}, TokenID: "j",
				IssuedAt: second(10), NotBefore: second(10), Expires: second(30), WarnAfter: second(20),
				Bound: []tokens.Object{{Kind: "Pod", Name: "p", UID: "pu"}},
			}},
		"bound to a node": {"", iss + who + `,"node":{"name":"n","uid":"nu"}}}`,
			tokens.Examination{Token: bound, Form: tokens.BoundForm, Account: account,
				Bound: []tokens.Object{{Kind: "Node", Name: "n", UID: "nu"}}}},
		"bound to a Secret": {"", iss + who + `,"secret":{"name":"s","uid":"su"}}}`,
			tokens.Examination{Token: bound, Form: tokens.BoundForm, Account: account,
				Bound: []tokens.Object{{Kind: "Secret", Name: "s", UID: "su"}}}},
		"one audience": {"RFC 7519, section 4.1.3", `{"aud":"a"}`, tokens.Examination{Form: tokens.OtherForm, Audiences: []string{"a"}}},
		"nulls": {
			"go-jose takes them for nothing", `{"aud":null,"exp":null,"jti":null,"kubernetes.io":null}`, tokens.Examination{Form: tokens.OtherForm},
		},
		"fraction":   {"rounded down, as go-jose does", `{"exp":30.9}`, tokens.Examination{Form: tokens.OtherForm, Expires: second(30)}},
		"no account": {"not of a ServiceAccount", `{"kubernetes.io":{"namespace":"demo"}}`, tokens.Examination{Form: tokens.OtherForm}},
		"empty":      {"nothing is required", `{}`, tokens.Examination{Form: tokens.OtherForm}},
		"nested enough": {
			"nobody needs more", `{"a":` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + `}`, tokens.Examination{Form: tokens.OtherForm},
		},
		"last second":    {"of the year 9999", `{"exp":253402300799}`, tokens.Examination{Form: tokens.OtherForm, Expires: second(253402300799)}},
		"first second":   {"", `{"exp":0}`, tokens.Examination{Form: tokens.OtherForm, Expires: second(0)}},
		"many audiences": {"", `{"aud":[]}`, tokens.Examination{Form: tokens.OtherForm, Audiences: []string{}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tokens.Examine(unsigned(header, tc.claims))
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if string(got.Header) != header || string(got.Claims) != tc.claims || got.Signature != "c2ln" {
				t.Errorf("%s: header %s, claims %s, signature %s", tc.reason, got.Header, got.Claims, got.Signature)
			}
			tc.want.KeyID, tc.want.Algorithm = "k", "ES256"
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(tokens.Examination{}, "Header", "Claims", "Signature")); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestExamineRefuses(t *testing.T) {
	t.Parallel()
	deep := `{"a":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}`
	cases := map[string]struct{ header, claims, want string }{
		"what Inspect refuses": {`{"kid":7}`, `{}`, "kid is not a string"},
		"text for a time":      {`{}`, `{"exp":"CANARY"}`, "the claim exp is not a time"},
		"time before time":     {`{}`, `{"nbf":-1}`, "the claim nbf is not a time"},
		"time after time":      {`{}`, `{"iat":253402300800}`, "the claim iat is not a time"},
		"endless time":         {`{}`, `{"exp":1e400}`, "the claim exp is not a time"},
		"audience":             {`{}`, `{"aud":["a",7]}`, "the claim aud is neither a string nor a list of strings"},
		"token ID":             {`{}`, `{"jti":7}`, "the claim jti is not a string"},
		"binding":              {`{}`, `{"kubernetes.io":"CANARY"}`, "the claim kubernetes.io is not what kube-apiserver writes"},
		"account": {
			`{}`, `{"kubernetes.io":{"serviceaccount":"CANARY"}}`, "the claim kubernetes.io is not what kube-apiserver writes",
		},
		"warning":      {`{}`, `{"kubernetes.io":{"warnafter":"CANARY"}}`, "the claim kubernetes.io.warnafter is not a time"},
		"deep header":  {deep, `{}`, "the header is nested more than 32 levels deep"},
		"deep payload": {`{}`, deep, "the payload is nested more than 32 levels deep"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := tokens.Examine(unsigned(tc.header, tc.claims))
			if !errors.Is(err, tokens.ErrMalformed) || err.Error() != "malformed token: "+tc.want {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func TestSignedWith(t *testing.T) {
	t.Parallel()
	rsa, ec := testkeys.Parse(testkeys.RSA2048()).Public(), testkeys.Parse(testkeys.P256()).Public()
	impostor := signing.PublicKey{ID: ec.ID, Algorithm: rsa.Algorithm, Key: rsa.Key}
	token, err := tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims).Legacy(t.Context(), account, secretName)
	testutil.Must(t, err)
	// TestVerifyLegacyRefuses has the attacks.
	cases := map[string]struct {
		token   string
		keys    []signing.PublicKey
		want    int
		wantErr error
	}{
		"its key":            {token, []signing.PublicKey{rsa, ec}, 1, nil},
		"two of the same ID": {token, []signing.PublicKey{rsa, impostor, ec}, 2, nil},
		"other keys":         {token, []signing.PublicKey{rsa}, 0, tokens.ErrUnknownKey},
		"no token":           {"CANARY", []signing.PublicKey{ec}, 0, tokens.ErrMalformed},
		"no ID, wrong keys":  {unsigned(`{"alg":"ES256"}`, "{}"), []signing.PublicKey{rsa, ec}, 0, tokens.ErrBadSignature},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tokens.SignedWith(tc.token, tc.keys)
			if got != tc.want || !errors.Is(err, tc.wantErr) {
				t.Errorf("got %d, %v; want %d, %v", got, err, tc.want, tc.wantErr)
			}
		})
	}
}
