// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

const legacyPayload = `{"iss":"kubernetes/serviceaccount","kubernetes.io/serviceaccount/namespace":"demo",` +
	`"kubernetes.io/serviceaccount/secret.name":"builder-token-x7k2p","kubernetes.io/serviceaccount/service-account.name":"builder",` +
	`"kubernetes.io/serviceaccount/service-account.uid":"0e0a3f5c-6d3c-4a0a-9a5f-6f6f1f1f2f2f","sub":"system:serviceaccount:demo:builder"}`

func unsigned(header, payload string) string {
	return segment(header) + "." + segment(payload) + ".c2ln"
}

func TestInspect(t *testing.T) {
	t.Parallel()
	full := tokens.Token{
		KeyID: "a-key", Algorithm: "RS256", Issuer: tokens.LegacyIssuer, Subject: "system:serviceaccount:demo:builder",
		Namespace: account.Namespace, AccountName: account.Name, AccountUID: account.UID, SecretName: secretName,
	}
	noKeyID := full
	noKeyID.KeyID = ""
	for name, tc := range map[string]struct {
		reason, token string
		want          tokens.Token
	}{
		"legacy":        {"no time, no audience", unsigned(`{"alg":"RS256","kid":"a-key"}`, legacyPayload), full},
		"no key ID":     {"very old kube-controller-managers wrote none", unsigned(`{"alg":"RS256"}`, legacyPayload), noKeyID},
		"white space":   {"JSON allows it", unsigned(" { \"alg\" : \"RS256\" ,\n \"kid\" :\t\"a-key\" } ", " "+legacyPayload+"\n"), full},
		"empty objects": {"nothing is required", unsigned("{}", "{}"), tokens.Token{}},
		"other case":    {"names are compared exactly, as go-jose does", unsigned(`{"ALG":"RS256","Kid":"x"}`, `{"ISS":"x"}`), tokens.Token{}},
		"longest": {
			"64 KiB", segment("{}") + "." + segment("{}") + "." + strings.Repeat("A", 64<<10-2*len(segment("{}"))-2), tokens.Token{},
		},
		"no signature": {"it is decoded, not verified", segment("{}") + "." + segment("{}") + ".", tokens.Token{}},
		"foreign header": {
			"jwk, jku and x5u are not looked at", unsigned(`{"alg":"none","jwk":{},"jku":"https://x","x5u":1,"kid":"../../etc/passwd"}`, `{}`),
			tokens.Token{KeyID: "../../etc/passwd", Algorithm: "none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := testutil.Get(tokens.Inspect(tc.token))(t)
			testutil.Check(t, tc.reason, tc.want, got)
		})
	}
}

func TestInspectRefuses(t *testing.T) {
	t.Parallel()
	object := segment("{}")
	for name, tc := range map[string]struct{ reason, token string }{
		"empty":               {"a Secret with an empty token", ""},
		"text":                {"a pre-filled Secret", "CANARY"},
		"two segments":        {"no signature", object + "." + object},
		"four segments":       {"not compact form", object + "." + object + "." + object + "." + object},
		"many dots":           {"CVE-2025-30204", strings.Repeat(".", 60_000)},
		"JSON serialization":  {"only the compact form is a bearer token", `{"payload":"CANARY"}`},
		"padding":             {"not canonical", segment("{ }") + "=." + object + "."},
		"standard base64":     {"another alphabet", "e+/e." + object + "."},
		"loose last bits":     {"a second text for the same bytes", "e31." + object + "."},
		"loose signature":     {"a second text for the same signature", object + "." + object + ".c2lnYQ1"},
		"line break":          {"base64 decoders skip it", object + "." + object + ".c2\nln"},
		"final line feed":     {"kubectl create --from-file", object + "." + object + ".c2ln\n"},
		"carriage return":     {"base64 decoders skip it", "e3\r0." + object + "."},
		"leading space":       {"not base64url", " " + object + "." + object + "."},
		"empty header":        {"no object", "." + object + "."},
		"array header":        {"no object", segment(`["CANARY"]`) + "." + object + "."},
		"null payload":        {"no object", object + "." + segment("null") + "."},
		"string payload":      {"no object", object + "." + segment(`"CANARY"`) + "."},
		"two objects":         {"trailing data", object + "." + segment("{}{}") + "."},
		"cut off":             {"broken JSON", object + "." + segment(`{"iss":"CANARY`) + "."},
		"trailing comma":      {"broken JSON", object + "." + segment(`{"iss":"CANARY",}`) + "."},
		"missing comma":       {"broken JSON", object + "." + segment(`{"iss":"CANARY" "sub":"x"}`) + "."},
		"duplicate key ID":    {"readers differ", segment(`{"kid":"CANARY","kid":"b"}`) + "." + object + "."},
		"duplicate by escape": {"the same name after decoding", object + "." + segment(`{"sub":"CANARY","\u0073ub":"b"}`) + "."},
		"number for key ID":   {"not a string", segment(`{"kid":7}`) + "." + object + "."},
		"null for issuer":     {"not a string", object + "." + segment(`{"iss":null}`) + "."},
		"object for subject":  {"not a string", object + "." + segment(`{"sub":{"CANARY":1}}`) + "."},
		"list for namespace":  {"not a string", object + "." + segment(`{"kubernetes.io/serviceaccount/namespace":["CANARY"]}`) + "."},
		"crit":                {"RFC 7515 section 4.1.11", segment(`{"crit":["CANARY"]}`) + "." + object + "."},
		"b64":                 {"RFC 7797", segment(`{"b64":false}`) + "." + object + "."},
		"deep nesting":        {"no stack overflow", object + "." + segment(strings.Repeat(`{"a":`, 9_000)) + "."},
		"deep and closed":     {"no stack overflow", object + "." + segment(strings.Repeat("[", 20_000)+strings.Repeat("]", 20_000)) + "."},
		"too long":            {"64 KiB and a byte", object + "." + segment("{} ") + "." + strings.Repeat("A", 64<<10-8)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tokens.Inspect(tc.token)
			if !errors.Is(err, tokens.ErrMalformed) {
				t.Fatalf("%s: Inspect returned %v, %v", tc.reason, got, err)
			}
			if got != (tokens.Token{}) {
				t.Errorf("%s: something was decoded: %v", tc.reason, got)
			}
			if strings.Contains(err.Error(), "CANARY") || strings.Contains(err.Error(), object) {
				t.Errorf("%s: error %q quotes the token", tc.reason, err)
			}
		})
	}
}

func TestMismatch(t *testing.T) {
	t.Parallel()
	good := tokens.Token{
		KeyID: "any", Algorithm: "any", Issuer: tokens.LegacyIssuer, Subject: account.Subject(),
		Namespace: account.Namespace, AccountName: account.Name, AccountUID: account.UID, SecretName: secretName,
	}
	testutil.Check(t, "every claim fits", "", good.Mismatch(account, secretName))
	cases := []struct { // in the order in which they are named
		claim, want string
		of          func(*tokens.Token) *string
	}{
		{"iss", tokens.LegacyIssuer, func(t *tokens.Token) *string { return &t.Issuer }},
		{"kubernetes.io/serviceaccount/namespace", "demo", func(t *tokens.Token) *string { return &t.Namespace }},
		{"kubernetes.io/serviceaccount/service-account.name", "builder", func(t *tokens.Token) *string { return &t.AccountName }},
		{"kubernetes.io/serviceaccount/service-account.uid", account.UID, func(t *tokens.Token) *string { return &t.AccountUID }},
		{"kubernetes.io/serviceaccount/secret.name", secretName, func(t *tokens.Token) *string { return &t.SecretName }},
		{"sub", "system:serviceaccount:demo:builder", func(t *tokens.Token) *string { return &t.Subject }},
	}
	for i, tc := range cases {
		for value, want := range map[string]string{
			"CANARY":                 fmt.Sprintf("the token's claim %s is not %q", tc.claim, tc.want),
			strings.ToUpper(tc.want): fmt.Sprintf("the token's claim %s is not %q", tc.claim, tc.want),
			"":                       fmt.Sprintf("the token has no claim %s (expected %q)", tc.claim, tc.want),
		} {
			token := good
			for _, later := range cases[i:] {
				*later.of(&token) = value
			}
			testutil.Check(t, fmt.Sprintf("%s is %q", tc.claim, value), want, token.Mismatch(account, secretName))
		}
	}
}

func TestCanonical(t *testing.T) {
	t.Parallel()
	const plain = "e30.e30.c2lnYQ"
	for name, tc := range map[string]struct {
		reason, token string
		want          string // "" if it stays as it is
	}{
		"as issued":              {"", plain, plain},
		"spare bits":             {"go-jose does not decode strictly", "e31.e32.c2lnYf", plain},
		"around it":              {"kubectl create --from-file", " \t\u00a0" + plain + "\r\n", plain},
		"within it":              {"go-jose strips it first", "e\t30.e30.c2\u2028ln YQ", plain},
		"payload in two lines":   {"base64 decoders skip line breaks", "e30.e3\r\n0.c2lnYQ", plain},
		"blank in the payload":   {"kube-apiserver decodes it once before go-jose strips it", "e30.e3 0.c2lnYQ", ""},
		"tab before the payload": {"likewise", "e30.\te30.c2lnYQ", ""},
		"padding":                {"no decoder of kube-apiserver's takes it", "e30=.e30=.c2lnYQ==", ""},
		"standard base64":        {"another alphabet", "e+/e.e30.c2lnYQ", ""},
		"one digit":              {"no byte", "e.e30.c2lnYQ", ""},
		"not UTF-8":              {"", "e30\xff.e30.c2lnYQ", ""},
		"two segments":           {"no signature", "e30.e31", ""},
		"four segments":          {"not compact form", plain + ".e31", ""},
		"JSON serialization":     {"kube-apiserver refuses what begins with a brace", ` {"payload":"e30.e31.c2lnYQ"}`, ""},
		"text":                   {"", " CANARY\n", ""},
		"empty":                  {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			want := tc.want
			if want == "" {
				want = tc.token
			}
			testutil.Check(t, tc.reason, want, tokens.Canonical(tc.token))
		})
	}
}

// TestOnlyTheCanonicalSpellingVerifies: what is re-issued by our own decision is no token that
// a user has edited.
func TestOnlyTheCanonicalSpellingVerifies(t *testing.T) {
	t.Parallel()
	key := testkeys.Parse(testkeys.P256())
	good, err := tokens.NewIssuer(key, tokens.CompatClaims).Legacy(t.Context(), account, secretName)
	testutil.Must(t, err)
	for name, token := range map[string]string{
		"spare bits": good[:len(good)-1] + string(good[len(good)-1]+1), // of 86 digits the last one is A, Q, g or w
		"line feed":  good + "\n",
		"tab":        good[:3] + "\t" + good[3:],
		"wrapped":    strings.ReplaceAll(good, ".", ".\n"),
		"wide blank": "\u3000" + good,
	} {
		if got, err := tokens.VerifyLegacy(token, ring()); !errors.Is(err, tokens.ErrMalformed) {
			t.Errorf("%s: as it stands there: %v, %v", name, got, err)
		}
		testutil.Check(t, name+": canonical spelling", good, tokens.Canonical(token))
		if got, err := tokens.VerifyLegacy(tokens.Canonical(token), ring()); err != nil || got.KeyID != key.ID() {
			t.Errorf("%s: as it was issued: %v, %v", name, got, err)
		}
	}
}

func TestSignedWith(t *testing.T) {
	t.Parallel()
	rsa, ec := testkeys.Parse(testkeys.RSA2048()).Public(), testkeys.Parse(testkeys.P256()).Public()
	impostor := signing.PublicKey{ID: ec.ID, Algorithm: rsa.Algorithm, Key: rsa.Key}
	token := testutil.Get(tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims).Legacy(t.Context(), account, secretName))(t)
	// TestVerifyLegacyRefuses has the attacks.
	for name, tc := range map[string]struct {
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
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tokens.SignedWith(tc.token, tc.keys)
			if got != tc.want || !errors.Is(err, tc.wantErr) {
				t.Errorf("got %d, %v; want %d, %v", got, err, tc.want, tc.wantErr)
			}
		})
	}
}

func TestUsableKeys(t *testing.T) {
	t.Parallel()
	key := testkeys.Parse(testkeys.RSA2048()).Public()
	got := tokens.UsableKeys([]signing.PublicKey{{ID: "broken", Problem: "x"}, {ID: "theirs", Key: key.Key}}, "somewhere")
	key.ID = "theirs"
	testutil.Check(t, "keys", []signing.Key{{PublicKey: key, Role: tokens.Published, Origin: "somewhere"}}, got)
}
