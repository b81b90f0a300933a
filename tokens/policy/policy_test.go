// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens"
	"sa-controller-manager/tokens/policy"
)

var policyNow = time.Unix(1_800_000_000, 0)

const (
	policyIssuer = "https://issuer.example"
	policyLimit  = 365 * 24 * time.Hour
)

func newPolicy(tb testing.TB) *policy.Policy {
	tb.Helper()
	p, err := policy.New([]string{policyIssuer, "https://former.example"}, policyLimit, clocktesting.NewFakePassiveClock(policyNow))
	testutil.Must(tb, err)
	return p
}

// bound are the claims that kube-apiserver v1.37.2 sends for a Pod's token.
func bound() map[string]any {
	return map[string]any{
		"aud": []string{policyIssuer},
		"exp": policyNow.Add(policyLimit).Unix(),
		"iat": policyNow.Unix(),
		"iss": policyIssuer,
		"jti": "2b0c1f7a-4c0e-4d7f-a6b5-6a4f0f8d3e21",
		"kubernetes.io": map[string]any{
			"namespace":      "team-a",
			"node":           map[string]any{"name": "node-1", "uid": "8f1c"},
			"pod":            map[string]any{"name": "web-0", "uid": "6e3d"},
			"serviceaccount": map[string]any{"name": "build.er", "uid": "0b1d"},
			"warnafter":      policyNow.Add(3607 * time.Second).Unix(),
		},
		"nbf": policyNow.Unix(),
		"sub": "system:serviceaccount:team-a:build.er",
	}
}

// webhookBound is the payload that kube-apiserver v1.37.2 sends for a token by which a webhook knows it
// (KEP-6060, alpha): bound to the webhook's configuration, for ten minutes at most, with attestations.
func webhookBound() string {
	return base64.RawURLEncoding.EncodeToString([]byte(`{"aud":["https://webhook.example"],"exp":1800000600,"iat":1800000000,` +
		`"iss":"https://issuer.example",` +
		`"jti":"8a1e0f8e-58a3-4dcb-9be8-1f6b6a5f6a57","kubernetes.io":{"attestations":{"admissionReviewAPIGroups":["apps",""]},` +
		`"namespace":"kube-system","serviceaccount":{"name":"kube-apiserver","uid":"0b1d"},` +
		`"validatingwebhookconfiguration":{"name":"policy","uid":"77aa"}},"nbf":1800000000,` +
		`"sub":"system:serviceaccount:kube-system:kube-apiserver"}`))
}

// claim changes one claim; a nil value removes it. A path of two names leads into claim
// kubernetes.io, one of three into its member.
func claim(value any, path ...string) func() string {
	return func() string {
		claims := bound()
		at := claims
		for _, name := range path[:len(path)-1] {
			at = at[name].(map[string]any)
		}
		if value == nil {
			delete(at, path[len(path)-1])
		} else {
			at[path[len(path)-1]] = value
		}
		return encode(claims)
	}
}

func encode(claims any) string {
	encoded, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(encoded)
}

// raw replaces text in the JSON of good claims.
func raw(old, replacement string) func() string {
	return func() string {
		encoded, err := json.Marshal(bound())
		if err != nil {
			panic(err)
		}
		if !strings.Contains(string(encoded), old) {
			panic("nothing to replace: " + old)
		}
		return base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(encoded), old, replacement, 1)))
	}
}

func fixed(payload string) func() string { return func() string { return payload } }

func TestPolicyPasses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		payload func() string
	}{
		"as kube-apiserver sends it": {"a Pod's token at its longest", func() string { return encode(bound()) }},
		"former issuer":              {"--service-account-issuer may be given several times", claim("https://former.example", "iss")},
		"one audience":               {"RFC 7519 allows a string", claim("vault", "aud")},
		"no nbf":                     {"optional", claim(nil, "nbf")},
		"no jti":                     {"the gate can be off", claim(nil, "jti")},
		"unbound":                    {"kubectl create token", claim(nil, "kubernetes.io", "pod")},
		"clock steps back":           {"the claims were made before the step", claim(policyNow.Add(10*time.Second).Unix(), "iat")},
		"waited for us": {"kube-apiserver waits a minute", func() string {
			claims := bound()
			claims["iat"], claims["exp"] = policyNow.Add(-time.Minute).Unix(), policyNow.Add(policyLimit-time.Minute).Unix()
			return encode(claims)
		}},
		"a new claim":         {"a later Kubernetes may add some", claim("x", "future")},
		"a new private claim": {"likewise", claim(map[string]string{"name": "x"}, "kubernetes.io", "future")},
		"bound to a webhook":  {"its claims are kube-apiserver's to choose", webhookBound},
		"white space":         {"JSON all the same", raw(`,"iss"`, " ,\n\"iss\"")},
	} {
		t.Run(name, func(t *testing.T) { testutil.CheckError(t, tc.reason, "", newPolicy(t).Check(tc.payload())) })
	}
}

func TestPolicyRefuses(t *testing.T) {
	t.Parallel()
	unix := func(d time.Duration) int64 { return policyNow.Add(d).Unix() }
	for name, tc := range map[string]struct {
		reason  string
		payload func() string
		want    string
	}{
		"empty":      {"nothing", fixed(""), policy.ReasonMalformed},
		"standard":   {"another alphabet", fixed("+/8"), policy.ReasonMalformed},
		"padded":     {"not a segment", fixed("e30="), policy.ReasonMalformed},
		"spare bits": {"two segments would be the same payload", fixed("e31"), policy.ReasonMalformed},
		"line break": {
			"the decoder skips it", func() string { return encode(bound())[:8] + "\n" + encode(bound())[8:] }, policy.ReasonMalformed,
		},
		"three segment": {"a whole token", func() string { return "e30." + encode(bound()) + ".e30" }, policy.ReasonMalformed},
		"not JSON":      {"text", fixed(base64.RawURLEncoding.EncodeToString([]byte("sub"))), policy.ReasonMalformed},
		"a list":        {"not an object", fixed(encode([]any{bound()})), policy.ReasonMalformed},
		"null":          {"not an object", fixed(encode(nil)), policy.ReasonMalformed},
		"two objects":   {"readers stop after the first", raw(`:build.er"}`, `:build.er"}{}`), policy.ReasonMalformed},
		"twice": {
			"readers differ on which counts", raw(`{"aud"`, `{"sub":"system:serviceaccount:kube-system:admin","aud"`),
			policy.ReasonMalformed,
		},
		"other case":  {"encoding/json takes SUB for sub", claim("system:serviceaccount:kube-system:admin", "SUB"), policy.ReasonMalformed},
		"Kelvin sign": {"encoding/json folds it to k", claim(map[string]string{}, "\u212aubernetes.io"), policy.ReasonMalformed},
		"not UTF-8":   {"read as another character", raw(`web-0`, "web\xff"), policy.ReasonMalformed},
		"too long":    {"bounded", claim(strings.Repeat("a", 64<<10), "future"), policy.ReasonMalformed},

		"no issuer":         {"whose?", claim(nil, "iss"), policy.ReasonIssuer},
		"another issuer":    {"another cluster's", claim("https://other.example", "iss"), policy.ReasonIssuer},
		"issuer with slash": {"compared as strings", claim(policyIssuer+"/", "iss"), policy.ReasonIssuer},
		"issuer list":       {"not a string", claim([]string{policyIssuer}, "iss"), policy.ReasonIssuer},
		"issuer null":       {"not a string", raw(`"iss":"https://issuer.example"`, `"iss":null`), policy.ReasonIssuer},
		"legacy issuer":     {"it would not expire", claim("kubernetes/serviceaccount", "iss"), policy.ReasonIssuer},

		"legacy claims": {"the token controller's", claim("s", "kubernetes.io/serviceaccount/secret.name"), policy.ReasonLegacy},

		"no subject":       {"nobody's", claim(nil, "sub"), policy.ReasonSubject},
		"a user":           {"not a service account", claim("admin", "sub"), policy.ReasonSubject},
		"a node":           {"not a service account", claim("system:node:a", "sub"), policy.ReasonSubject},
		"another account":  {"the two disagree", claim("system:serviceaccount:team-a:admin", "sub"), policy.ReasonSubject},
		"another place":    {"the two disagree", claim("system:serviceaccount:kube-system:build.er", "sub"), policy.ReasonSubject},
		"five parts":       {"ambiguous", claim("system:serviceaccount:team-a:build.er:x", "sub"), policy.ReasonSubject},
		"upper case":       {"no such prefix", claim("System:serviceaccount:team-a:build.er", "sub"), policy.ReasonSubject},
		"no kubernetes.io": {"no account", claim(nil, "kubernetes.io"), policy.ReasonSubject},
		"no namespace":     {"no account", claim(nil, "kubernetes.io", "namespace"), policy.ReasonSubject},
		"no account":       {"no account", claim(nil, "kubernetes.io", "serviceaccount"), policy.ReasonSubject},
		"account a string": {"no UID", claim("build.er", "kubernetes.io", "serviceaccount"), policy.ReasonSubject},
		"no name":          {"no account", claim(nil, "kubernetes.io", "serviceaccount", "name"), policy.ReasonSubject},
		"no UID": {
			"an account of the same name later", claim(nil, "kubernetes.io", "serviceaccount", "uid"), policy.ReasonSubject,
		},
		"empty UID":    {"likewise", claim("", "kubernetes.io", "serviceaccount", "uid"), policy.ReasonSubject},
		"UID a number": {"not a string", claim(7, "kubernetes.io", "serviceaccount", "uid"), policy.ReasonSubject},
		"Namespace":    {"differs in case", claim("kube-system", "kubernetes.io", "Namespace"), policy.ReasonSubject},
		"Name":         {"differs in case", claim("admin", "kubernetes.io", "serviceaccount", "Name"), policy.ReasonSubject},
		"colon": {"would move the border in the subject", func() string {
			claims := bound()
			claims["sub"] = "system:serviceaccount:team-a:x:build.er"
			claims["kubernetes.io"].(map[string]any)["namespace"] = "team-a:x"
			return encode(claims)
		}, policy.ReasonSubject},
		"private claim twice": {"readers differ", raw(`{"namespace"`, `{"namespace":"kube-system","namespace"`), policy.ReasonSubject},

		"no audience":      {"taken for a legacy token, admitted everywhere", claim(nil, "aud"), policy.ReasonAudience},
		"empty list":       {"likewise", claim([]string{}, "aud"), policy.ReasonAudience},
		"empty audience":   {"likewise", claim("", "aud"), policy.ReasonAudience},
		"empty in a list":  {"likewise", claim([]string{policyIssuer, ""}, "aud"), policy.ReasonAudience},
		"null in a list":   {"likewise", claim([]any{policyIssuer, nil}, "aud"), policy.ReasonAudience},
		"number":           {"not a string", claim(7, "aud"), policy.ReasonAudience},
		"number in a list": {"likewise", claim([]any{policyIssuer, 7}, "aud"), policy.ReasonAudience},
		"null audience":    {"no audience either", raw(`"aud":["`+policyIssuer+`"]`, `"aud":null`), policy.ReasonAudience},

		"no exp":         {"would not expire", claim(nil, "exp"), policy.ReasonLifetime},
		"exp null":       {"would not expire", raw(`"exp":`, `"exp":null,"x":`), policy.ReasonLifetime},
		"exp a string":   {"readers differ", claim("1900000000", "exp"), policy.ReasonLifetime},
		"exp a half":     {"kube-apiserver writes whole seconds", raw(`"exp":1`, `"exp":0.1`), policy.ReasonLifetime},
		"exp exponent":   {"readers differ", raw(`"exp":1`, `"exp":1e`), policy.ReasonLifetime},
		"exp negative":   {"in the past", claim(-1, "exp"), policy.ReasonLifetime},
		"exp overflows":  {"would wrap", raw(`"exp":1`, `"exp":99999999999999`), policy.ReasonLifetime},
		"exp far away":   {"no date", claim(lastDay, "exp"), policy.ReasonLifetime},
		"no iat":         {"from when?", claim(nil, "iat"), policy.ReasonLifetime},
		"too long by 1":  {"the limit", claim(unix(policyLimit+time.Second), "exp"), policy.ReasonLifetime},
		"iat ahead":      {"would move the limit", claim(unix(11*time.Second), "iat"), policy.ReasonLifetime},
		"iat moved back": {"counts from iat", claim(unix(-time.Second), "iat"), policy.ReasonLifetime},
		"expired":        {"of no use", claim(unix(0), "exp"), policy.ReasonLifetime},
		"nbf after exp":  {"never valid", claim(unix(policyLimit+time.Second), "nbf"), policy.ReasonLifetime},
		"nbf a string":   {"readers differ", claim("0", "nbf"), policy.ReasonLifetime},
	} {
		t.Run(name, func(t *testing.T) {
			payload := tc.payload()
			err := newPolicy(t).Check(payload)
			refusal, ok := errors.AsType[*policy.RefusalError](err)
			testutil.Require(t, ok && refusal.Reason() == tc.want, "%s: Check returned %v, want a refusal because of %s", tc.reason, err,
				tc.want)
			for _, value := range []string{"team-a", "build.er", "web-0", "0b1d", "other.example", "admin", payload} {
				testutil.Expect(t, len(value) <= 3 || !strings.Contains(err.Error(), value), "%s: the error repeats %q of the payload: %v",
					tc.reason,
					value, err)
			}
		})
	}
}

// lastDay is in the year 10000.
const lastDay = 253402300800

func TestNewPolicyRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		issuers []string
		limit   time.Duration
		want    string
	}{
		"no issuer":     {nil, time.Hour, "missing or empty"},
		"empty issuer":  {[]string{policyIssuer, ""}, time.Hour, "missing or empty"},
		"legacy issuer": {[]string{policyIssuer, tokens.LegacyIssuer}, time.Hour, "marks legacy tokens"},
		"no lifetime":   {[]string{policyIssuer}, 0, "less than a second"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := policy.New(tc.issuers, tc.limit, nil)
			testutil.Expect(t, p == nil && err != nil && strings.Contains(err.Error(), tc.want),
				"New returned %v, %v, want an error with %q", p,
				err, tc.want)
		})
	}
}

// FuzzPolicy wants whatever passes to be, for a reader of another make, a token that expires in
// time and is for the account that the policy saw.
func FuzzPolicy(f *testing.F) {
	seeds := []map[string]any{bound()}
	for _, name := range []string{"SUB", "exp", "aud"} {
		odd := maps.Clone(bound())
		odd[name] = nil
		seeds = append(seeds, odd)
	}
	for _, seed := range seeds {
		encoded := testutil.Get(json.Marshal(seed))(f)
		f.Add(encoded)
	}
	policy := newPolicy(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		payload := base64.RawURLEncoding.EncodeToString(data)
		if policy.Check(payload) != nil {
			return
		}
		var read struct {
			jwt.RegisteredClaims
			Kubernetes struct {
				Namespace      string `json:"namespace"`
				ServiceAccount struct {
					Name string `json:"name"`
					UID  string `json:"uid"`
				} `json:"serviceaccount"`
			} `json:"kubernetes.io"`
		}
		testutil.Must(t, json.Unmarshal(data, &read))
		account := read.Kubernetes.ServiceAccount
		if read.Subject != "system:serviceaccount:"+read.Kubernetes.Namespace+":"+account.Name || strings.Count(read.Subject, ":") != 3 ||
			account.UID == "" {
			t.Errorf("passes for subject %q of account %+v", read.Subject, read.Kubernetes)
		}
		testutil.Expect(t, read.Issuer == policyIssuer || read.Issuer == "https://former.example", "passes for issuer %q", read.Issuer)
		testutil.Expect(t, read.ExpiresAt != nil && !read.ExpiresAt.After(policyNow.Add(policyLimit+10*time.Second)) &&
			len(read.Audience) != 0,
			"passes with exp %v and audience %q", read.ExpiresAt, read.Audience)
	})
}
