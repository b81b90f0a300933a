// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

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
// validity. Compat tokens come back with the Secret's name, unique ones do not, because each has a UUID.
func TestUniqueClaims(t *testing.T) {
	t.Parallel()
	key := testkeys.Parse(testkeys.RSA2048())
	now := clocktesting.NewFakePassiveClock(time.Unix(1_790_000_000, 700_000_000))
	issue := func(style tokens.ClaimStyle, id string) (token, header string, claims map[string]any) {
		issuer := tokens.NewIssuer(key, style)
		issuer.Clock = now
		if id != "" {
			issuer.TokenID = func() string { return id }
		}
		token = testutil.Get(issuer.Legacy(t.Context(), account, secretName))(t)
		header, payload := decoded(t, token)
		testutil.Must(t, json.Unmarshal([]byte(payload), &claims))
		return token, header, claims
	}
	compat, wantHeader, want := issue(tokens.CompatClaims, "")
	again, _, _ := issue(tokens.CompatClaims, "")
	testutil.Expect(t, again == compat, "two compat tokens for the same Secret differ")
	unique, header, got := issue(tokens.UniqueClaims, "an-id")
	want["iat"], want["jti"] = float64(1_790_000_000), "an-id"
	testutil.Check(t, "header", wantHeader, header)
	testutil.Check(t, "claims", want, got)
	verified := testutil.Get(tokens.VerifyLegacy(unique, signing.NewKeyring(signing.KeyFileRing(key))))(t)
	testutil.Check(t, "mismatch", "", verified.Mismatch(account, secretName))

	_, _, first := issue(tokens.UniqueClaims, "")
	_, _, second := issue(tokens.UniqueClaims, "")
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	testutil.Expect(t, uuid.MatchString(first["jti"].(string)) && first["jti"] != second["jti"],
		"jti of two tokens: %v and %v, want version 4 UUIDs", first["jti"], second["jti"])
}

func TestLegacyRefuses(t *testing.T) {
	t.Parallel()
	errBoom := errors.New("boom")
	type request struct {
		signer  fakeSigner
		style   tokens.ClaimStyle
		account tokens.Account
		secret  string
	}
	for name, tc := range map[string]struct {
		reason string
		change func(*request)
		want   string
		asked  int
	}{
		"no namespace": {
			"the apiserver refuses an empty claim", func(r *request) { r.account.Namespace = "" }, "the namespace is empty", 0,
		},
		"no name": {"likewise", func(r *request) { r.account.Name = "" }, "the service account name is empty", 0},
		"no UID": {
			"it would fit an earlier account", func(r *request) { r.account.UID = "" }, "the service account UID is empty", 0,
		},
		"no secret":     {"nothing could revoke it", func(r *request) { r.secret = "" }, "the secret name is empty", 0},
		"colon":         {"the subject would be ambiguous", func(r *request) { r.account.Namespace = "a:b" }, "contains a colon", 0},
		"colon in name": {"the subject would be ambiguous", func(r *request) { r.account.Name = "b:c" }, "contains a colon", 0},
		"style": {
			"a typing mistake must not pick a style", func(r *request) { r.style = "Compat" }, `unknown claim style "Compat"`, 0,
		},
		"no style":     {"nor a forgotten one", func(r *request) { r.style = "" }, `unknown claim style ""`, 0},
		"signer error": {"it is passed on", func(r *request) { r.signer.err = errBoom }, "sign claims: boom", 1},
		"no header":    {"half a token is none", func(r *request) { r.signer.header = "" }, "empty segment", 1},
		"no signature": {"half a token is none", func(r *request) { r.signer.signature = "" }, "empty segment", 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := request{fakeSigner{header: "e30", signature: "c2ln"}, tokens.CompatClaims, account, secretName}
			tc.change(&r)
			token, err := tokens.NewIssuer(&r.signer, r.style).Legacy(t.Context(), r.account, r.secret)
			if token != "" || err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, errBoom) != (r.signer.err != nil) {
				t.Errorf("%s: Legacy returned a token of %d bytes and error %v, want an error with %q", tc.reason, len(token), err, tc.want)
			}
			testutil.Check(t, tc.reason+": signatures", tc.asked, r.signer.calls)
		})
	}
}

func TestBoundRefuses(t *testing.T) {
	t.Parallel()
	good := tokens.BoundRequest{Issuer: "https://issuer", Account: account, Audiences: []string{"probe"}, Lifetime: time.Minute}
	for name, tc := range map[string]struct {
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
		"a moment":       {"it would have expired", func(r *tokens.BoundRequest) { r.Lifetime = time.Second - 1 }, "less than a second"},
		"no account":     {"it would name nobody", func(r *tokens.BoundRequest) { r.Account = tokens.Account{} }, "the namespace is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			signer := &fakeSigner{header: "e30", signature: "c2ln"}
			issuer := tokens.NewIssuer(signer, tokens.CompatClaims)
			if _, err := issuer.Bound(t.Context(), good); err != nil || signer.style != signing.JWTHeader {
				t.Fatalf("the good request got %v with header style %v", err, signer.style)
			}
			request := good
			tc.change(&request)
			token, err := issuer.Bound(t.Context(), request)
			testutil.Expect(t, token == "" && err != nil && strings.Contains(err.Error(), tc.want) && signer.calls == 1,
				"%s: Bound returned a token of %d bytes and error %v, want an error with %q", tc.reason, len(token), err, tc.want)
		})
	}
}

// TestLegacyMatchesUpstream: for the same key, account and Secret the token is the one that
// kube-controller-manager writes. With RSA that means the same bytes; an ECDSA signature is
// different each time, so there header and payload are the same bytes.
func TestLegacyMatchesUpstream(t *testing.T) {
	t.Parallel()
	keys := namedKeys()
	for _, v := range vectors(t, "legacy") {
		t.Run(v.Key+" "+v.Name, func(t *testing.T) {
			key := keys[v.Key]
			token := testutil.Get(tokens.NewIssuer(key, tokens.CompatClaims).Legacy(t.Context(), v.account(), v.Secret))(t)
			got, want := token, v.Token
			if key.Public().Algorithm != "RS256" {
				got, want = got[:strings.LastIndex(got, ".")], want[:strings.LastIndex(want, ".")]
			}
			testutil.Check(t, "upstream's and ours", want, got)
			for whose, token := range map[string]string{"ours": token, "upstream's": v.Token} {
				verified, err := tokens.VerifyLegacy(token, signing.NewKeyring(signing.KeyFileRing(key)))
				testutil.CheckError(t, whose, "", err)
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
			issuer := tokens.NewIssuer(keys[v.Key], tokens.CompatClaims)
			issuer.Clock = clocktesting.NewFakePassiveClock(time.Unix(varying.IssuedAt, 999_999_999))
			issuer.TokenID = func() string { return varying.ID }
			token := testutil.Get(issuer.Bound(t.Context(), tokens.BoundRequest{
				Issuer:    v.Issuer,
				Account:   v.account(),
				Audiences: v.Audiences,
				Lifetime:  time.Duration(v.LifetimeSeconds) * time.Second,
			}))(t)
			gotHeader, gotPayload := decoded(t, token)
			testutil.Check(t, "payload", wantPayload, gotPayload)
			testutil.Check(t, "header", strings.TrimSuffix(wantHeader, "}")+`,"typ":"JWT"}`, gotHeader)
		})
	}
}

var account = tokens.Account{Namespace: "demo", Name: "builder", UID: "0e0a3f5c-6d3c-4a0a-9a5f-6f6f1f1f2f2f"}

const secretName = "builder-token-x7k2p"

// namedKeys are the keys that the golden tokens were signed with.
func namedKeys() map[string]*signing.PrivateKey {
	return map[string]*signing.PrivateKey{
		"rsa-2048": testkeys.Parse(testkeys.RSA2048()),
		"rsa-3072": testkeys.Parse(testkeys.RSA3072()),
		"p256":     testkeys.Parse(testkeys.P256()),
		"p384":     testkeys.Parse(testkeys.P384()),
		"p521":     testkeys.Parse(testkeys.P521()),
	}
}

// vector is a golden token with what went into it.
type vector struct {
	Kind            string   `json:"kind"`
	Key             string   `json:"key"`
	Namespace       string   `json:"namespace"`
	Name            string   `json:"name"`
	UID             string   `json:"uid"`
	Secret          string   `json:"secret"`
	Issuer          string   `json:"issuer"`
	Audiences       []string `json:"audiences"`
	LifetimeSeconds int64    `json:"lifetimeSeconds"`
	Token           string   `json:"token"`
}

func (v vector) account() tokens.Account {
	return tokens.Account{Namespace: v.Namespace, Name: v.Name, UID: v.UID}
}

// vectors returns the golden tokens of one kind.
func vectors(tb testing.TB, kind string) []vector {
	tb.Helper()
	data := testutil.Get(os.ReadFile("testdata/upstream-tokens.json"))(tb)
	var all, chosen []vector
	testutil.Must(tb, json.Unmarshal(data, &all))
	for _, v := range all {
		if v.Kind == kind {
			chosen = append(chosen, v)
		}
	}
	testutil.Require(tb, len(chosen) != 0, "no golden tokens of kind %s", kind)
	return chosen
}

// decoded returns header and payload of a token as JSON text.
func decoded(tb testing.TB, token string) (header, payload string) {
	tb.Helper()
	segments := strings.Split(token, ".")
	testutil.Require(tb, len(segments) == 3, "the token has %d segments", len(segments))
	var texts [2]string
	for i := range texts {
		text := testutil.Get(base64.RawURLEncoding.Strict().DecodeString(segments[i]))(tb)
		texts[i] = string(text)
	}
	return texts[0], texts[1]
}

func segment(data string) string { return base64.RawURLEncoding.EncodeToString([]byte(data)) }

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
		"other case": {
			"names are compared exactly, as go-jose does", unsigned(`{"ALG":"RS256","Kid":"x"}`, `{"ISS":"x"}`), tokens.Token{},
		},
		"longest": {
			"64 KiB", segment("{}") + "." + segment("{}") + "." + strings.Repeat("A", 64<<10-2*len(segment("{}"))-2), tokens.Token{},
		},
		"no signature": {"it is decoded, not verified", segment("{}") + "." + segment("{}") + ".", tokens.Token{}},
		"foreign header": {
			"jwk, jku and x5u are not looked at",
			unsigned(`{"alg":"none","jwk":{},"jku":"https://x","x5u":1,"kid":"../../etc/passwd"}`, `{}`),
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
			testutil.Require(t, errors.Is(err, tokens.ErrMalformed), "%s: Inspect returned %v, %v", tc.reason, got, err)
			testutil.Expect(t, got == (tokens.Token{}), "%s: something was decoded: %v", tc.reason, got)
			testutil.Expect(t, !strings.Contains(err.Error(), "CANARY") && !strings.Contains(err.Error(), object),
				"%s: error %q quotes the token", tc.reason, err)
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
	good := testutil.Get(tokens.NewIssuer(key, tokens.CompatClaims).Legacy(t.Context(), account, secretName))(t)
	for name, token := range map[string]string{
		"spare bits": good[:len(good)-1] + string(good[len(good)-1]+1), // of 86 digits the last one is A, Q, g or w
		"line feed":  good + "\n",
		"tab":        good[:3] + "\t" + good[3:],
		"wrapped":    strings.ReplaceAll(good, ".", ".\n"),
		"wide blank": "\u3000" + good,
	} {
		got, err := tokens.VerifyLegacy(token, ring())
		testutil.Expect(t, errors.Is(err, tokens.ErrMalformed), "%s: as it stands there: %v, %v", name, got, err)
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
	issuer := tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims)
	token := testutil.Get(issuer.Legacy(t.Context(), account, secretName))(t)
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
			testutil.Expect(t, got == tc.want && errors.Is(err, tc.wantErr), "got %d, %v; want %d, %v", got, err, tc.want, tc.wantErr)
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
