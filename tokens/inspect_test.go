// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	cases := map[string]struct {
		reason string
		token  string
		want   tokens.Token
	}{
		"legacy":        {"every member", unsigned(`{"alg":"RS256","kid":"a-key"}`, legacyPayload), full},
		"no key ID":     {"very old kube-controller-managers wrote none", unsigned(`{"alg":"RS256"}`, legacyPayload), noKeyID},
		"white space":   {"JSON allows it", unsigned(" { \"alg\" : \"RS256\" ,\n \"kid\" :\t\"a-key\" } ", " "+legacyPayload+"\n"), full},
		"empty objects": {"nothing is required", unsigned("{}", "{}"), tokens.Token{}},
		"other case":    {"names are compared exactly, as go-jose does", unsigned(`{"ALG":"RS256","Kid":"x"}`, `{"ISS":"x"}`), tokens.Token{}},
		"longest": {
			"64 KiB", segment("{}") + "." + segment("{}") + "." + strings.Repeat("A", 64<<10-2*len(segment("{}"))-2), tokens.Token{},
		},
		"no signature": {"it is decoded, not verified", segment("{}") + "." + segment("{}") + ".", tokens.Token{}},
		"bound": {
			"other claims may have any type",
			unsigned(`{"alg":"ES256","kid":"k","typ":"JWT"}`, `{"iss":"https://x","sub":"s","aud":["a"],"exp":1,"kubernetes.io":{"namespace":"n"}}`),
			tokens.Token{KeyID: "k", Algorithm: "ES256", Issuer: "https://x", Subject: "s"},
		},
		"foreign header": {
			"jwk, jku and x5u are not looked at", unsigned(`{"alg":"none","jwk":{},"jku":"https://x","x5u":1,"kid":"../../etc/passwd"}`, `{}`),
			tokens.Token{KeyID: "../../etc/passwd", Algorithm: "none"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tokens.Inspect(tc.token)
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestInspectRefuses(t *testing.T) {
	t.Parallel()
	object := segment("{}")
	cases := map[string]struct {
		reason string
		token  string
	}{
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
	}
	for name, tc := range cases {
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
		Issuer: tokens.LegacyIssuer, Subject: account.Subject(),
		Namespace: account.Namespace, AccountName: account.Name, AccountUID: account.UID, SecretName: secretName,
	}
	cases := map[string]struct {
		reason string
		change func(*tokens.Token)
		want   string
	}{
		"fits":         {"every claim", func(*tokens.Token) {}, ""},
		"other header": {"the header is not a claim", func(t *tokens.Token) { t.KeyID, t.Algorithm = "CANARY", "CANARY" }, ""},
		"issuer": {
			"a bound token", func(t *tokens.Token) { t.Issuer = "CANARY" }, `the token's claim iss is not "kubernetes/serviceaccount"`,
		},
		"no issuer": {
			"a stranger's token", func(t *tokens.Token) { t.Issuer = "" }, `the token has no claim iss (expected "kubernetes/serviceaccount")`,
		},
		"namespace": {
			"copied from elsewhere", func(t *tokens.Token) { t.Namespace = "CANARY" },
			`the token's claim kubernetes.io/serviceaccount/namespace is not "demo"`,
		},
		"account": {
			"another account", func(t *tokens.Token) { t.AccountName = "CANARY" },
			`the token's claim kubernetes.io/serviceaccount/service-account.name is not "builder"`,
		},
		"UID": {
			"the account before", func(t *tokens.Token) { t.AccountUID = "CANARY" },
			`the token's claim kubernetes.io/serviceaccount/service-account.uid is not "` + account.UID + `"`,
		},
		"secret": {
			"copied from another Secret", func(t *tokens.Token) { t.SecretName = "CANARY" },
			`the token's claim kubernetes.io/serviceaccount/secret.name is not "builder-token-x7k2p"`,
		},
		"subject": {
			"the name the apiserver goes by", func(t *tokens.Token) { t.Subject = "CANARY" },
			`the token's claim sub is not "system:serviceaccount:demo:builder"`,
		},
		"no claims": {
			"the first one is named", func(t *tokens.Token) { *t = tokens.Token{Issuer: tokens.LegacyIssuer} },
			`the token has no claim kubernetes.io/serviceaccount/namespace (expected "demo")`,
		},
		"case of names": {
			"names are compared exactly", func(t *tokens.Token) { t.AccountName = "Builder" },
			`the token's claim kubernetes.io/serviceaccount/service-account.name is not "builder"`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			token := good
			tc.change(&token)
			if diff := cmp.Diff(tc.want, token.Mismatch(account, secretName)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
