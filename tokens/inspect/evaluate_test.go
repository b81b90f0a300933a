// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
	"sa-controller-manager/tokens/inspect"
)

var (
	now     = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	account = tokens.Account{Namespace: "shop", Name: "robot", UID: "u-1"}
)

// bound is a token of an hour, issued at the time.
func bound(tb testing.TB, at time.Time) string {
	tb.Helper()
	issuer := tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims)
	issuer.Clock = clocktesting.NewFakePassiveClock(at)
	token := testutil.Get(issuer.Bound(tb.Context(),
		tokens.BoundRequest{Issuer: "https://issuer", Account: account, Audiences: []string{"a", "b"}, Lifetime: time.Hour}))(tb)
	return token
}

func legacy(tb testing.TB) string {
	tb.Helper()
	token, err := tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims).Legacy(tb.Context(), account, "robot-token")
	testutil.Must(tb, err)
	return token
}

func segment(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func givenKeys(tb testing.TB) []signing.Key {
	tb.Helper()
	return []signing.Key{
		{PublicKey: testkeys.Parse(testkeys.RSA2048()).Public(), Role: signing.Active, Origin: "one"},
		{PublicKey: testkeys.Parse(testkeys.P256()).Public(), Role: signing.Retired, Origin: "two"},
	}
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	good, old := bound(t, now.Add(-time.Minute)), legacy(t)
	tampered := good[:strings.LastIndex(good, ".")+1] + segment(strings.Repeat("x", 64))
	_, unheaded, _ := strings.Cut(good, ".")
	noKeyID := segment(`{"alg":"ES256"}`) + "." + unheaded
	accepted := &inspect.Review{TokenReviewStatus: authenticationv1.TokenReviewStatus{
		Authenticated: true, User: authenticationv1.UserInfo{Username: "system:serviceaccount:shop:robot"},
	}}
	respelled := good[:len(good)-1] + string(good[len(good)-1]+1) // of 86 digits the last one is A, Q, g or w
	payloadAt := strings.Index(old, ".") + 1
	const wrong = "the signature is wrong: the key that its header names did not make it"
	const notBase64 = "malformed token: the payload is not base64url"
	issuer := []string{"https://issuer"}
	for name, tc := range map[string]struct {
		reason, token string // good if empty
		keys          int    // of those that are given, both if 0, none if -1
		issuers       []string
		review        *inspect.Review
		want          inspect.Verdict // Valid if empty
		because       []string
		notes         int
	}{
		"good":           {issuers: issuer, notes: 1},
		"legacy":         {reason: "no issuer of bound tokens counts", token: old, issuers: issuer, notes: 1},
		"one of several": {reason: "the former issuers are accepted too", issuers: []string{"https://new", "https://issuer"}, notes: 1},
		"expired": {
			token: bound(t, now.Add(-3*time.Hour)), want: inspect.Invalid, because: []string{"it expired 120m ago"}, notes: 1,
		},
		"just expired": {
			token: bound(t, now.Add(-time.Hour-time.Second)), want: inspect.Invalid, because: []string{"it expired 1s ago"}, notes: 1,
		},
		"expires now": {token: bound(t, now.Add(-time.Hour)), notes: 2},
		"not yet": {
			token: bound(t, now.Add(2*time.Hour)), want: inspect.Invalid, notes: 1,
			because: []string{"it is valid only in 120m: a clock may be wrong"},
		},
		"other issuer": {
			issuers: []string{"https://other"}, want: inspect.Invalid, because: []string{"the issuer is not https://other"},
		},
		"none of them": {issuers: []string{"a", "b"}, want: inspect.Invalid, because: []string{"the issuer is not a or b"}},
		"unknown key":  {keys: 1, want: inspect.Invalid, because: []string{"no key that was given has its key ID"}, notes: 1},
		"tampered":     {token: tampered, want: inspect.Invalid, because: []string{wrong}, notes: 1},
		"no key ID": {
			reason: "the header is signed too", token: noKeyID, want: inspect.Invalid, notes: 1,
			because: []string{"it has no key ID, and none of the keys that were given made its signature"},
		},
		"everything": {
			reason: "each reason is a finding", token: bound(t, now.Add(-3*time.Hour)), keys: 1, issuers: []string{"x"},
			want:    inspect.Invalid,
			because: []string{"no key that was given has its key ID", "it expired 120m ago", "the issuer is not x"},
		},
		"no keys": {
			reason: "exit code 1", keys: -1, want: inspect.Unknown, notes: 2,
			because: []string{"there is no key to verify the signature with"},
		},
		"deep": {
			reason: "indented it would fill a disk", keys: -1, want: inspect.Unknown, notes: 3,
			token: segment(`{"alg":"ES256","kid":"x"}`) + "." + segment(`{"a":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+"}") +
				".AA",
			because: []string{"there is no key to verify the signature with"},
		},
		"malformed time": {
			token: segment("{}") + "." + segment(`{"exp":"CANARY"}`) + ".AA", want: inspect.Invalid,
			because: []string{"malformed token: exp, nbf and iat must be times, aud a string or a list of strings, and jti a string"},
		},
		"malformed payload": {reason: "and where", token: "e30.!.e30", want: inspect.Invalid, because: []string{notBase64}},
		"spare bits":        {reason: "kube-apiserver does not mind, and others may", token: respelled, issuers: issuer, notes: 2},
		"white space":       {reason: "likewise", token: old[:3] + "\t" + old[3:] + "\n", notes: 2},
		"blank in payload": {
			reason: "kube-apiserver minds", token: old[:payloadAt+3] + " " + old[payloadAt+3:], want: inspect.Invalid,
			because: []string{notBase64},
		},
		"accepted": {reason: "kube-apiserver's word counts", keys: -1, review: accepted, issuers: issuer},
		"accepted anyhow": {
			reason: "an external signer may keep keys out of the JWKS", keys: 1, review: accepted, issuers: []string{"x"}, notes: 2,
		},
		"refused": {
			reason: "its account is gone", issuers: issuer, want: inspect.Invalid,
			review:  &inspect.Review{TokenReviewStatus: authenticationv1.TokenReviewStatus{Error: "gone"}},
			because: []string{"kube-apiserver refuses it: gone"},
		},
		"refused silently": {
			token: old, review: &inspect.Review{}, want: inspect.Invalid,
			because: []string{"kube-apiserver refuses it: it gives no reason"},
		},
		"stranger": {
			reason: "a token of another program", keys: -1,
			token: segment(`{"alg":"ES256","kid":"x"}`) + "." + segment(`{"iss":"https://issuer","exp":1}`) + ".AA",
			want:  inspect.Invalid, because: []string{"it expired 56y ago"}, notes: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			known := inspect.Known{Now: now, Keys: givenKeys(t), Issuers: tc.issuers, Review: tc.review}
			if tc.keys != 0 {
				known.Keys = known.Keys[:max(0, tc.keys)]
			}
			tc.token, tc.want = cmp.Or(tc.token, good), cmp.Or(tc.want, inspect.Valid)
			got := inspect.Evaluate(tc.token, known)
			testutil.Expect(t, got.Verdict == tc.want && len(got.Notes) == tc.notes, "%s: verdict %s, want %s; notes %v, want %d",
				tc.reason,
				got.Verdict, tc.want, got.Notes, tc.notes)
			var reasons []string
			for _, finding := range got.Findings {
				testutil.Expect(t, finding.Code != "", "%s: %q has no code", tc.reason, finding.Message)
				reasons = append(reasons, finding.Message)
			}
			testutil.Check(t, tc.reason+": reasons", tc.because, reasons)
		})
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	token := bound(t, now.Add(-time.Minute))
	for _, output := range []string{"text", "json", "yaml"} {
		report := inspect.Evaluate(token, inspect.Known{Now: now, Keys: givenKeys(t)})
		var got bytes.Buffer
		testutil.Must(t, printers.Document(&got, output, &report, report.Text))
		for _, secret := range append(strings.Split(token, "."), token) {
			testutil.Expect(t, !strings.Contains(got.String(), secret), "%s holds a part of the token:\n%s", output, got.String())
		}
		clitest.Golden(t, "valid."+output, regexp.MustCompile(`[0-9a-f-]{36}`).ReplaceAllString(got.String(), "JTI"))
	}
}

// TestPrintIsSafe: a claim may hold what steers a terminal.
func TestPrintIsSafe(t *testing.T) {
	t.Parallel()
	token := segment(`{"alg":"ES256","kid":"k\u001b[2J"}`) + "." + segment(`{"sub":"a\nVerdict: valid","iss":"`+"\u009b\u202e\x7f"+`"}`) +
		".AA"
	report := inspect.Evaluate(token, inspect.Known{Now: now})
	for _, output := range []string{"text", "json", "yaml"} {
		var got bytes.Buffer
		testutil.Must(t, printers.Document(&got, output, &report, report.Text))
		if strings.ContainsAny(got.String(), "\x1b\u009b\x7f") || output == "text" && strings.Contains(got.String(), "\u202e") ||
			strings.Count(got.String(), "\nVerdict") > 0 {
			t.Errorf("%s:\n%q", output, got.String())
		}
	}
}

// FuzzEvaluate: whatever is inspected, nothing breaks, and neither text nor documents hold the
// signature.
func FuzzEvaluate(f *testing.F) {
	f.Add(bound(f, now))
	f.Add(legacy(f))
	f.Add("..")
	f.Add(segment(`{"kid":"\u0000"}`) + "." + segment(`{"exp":1e3,"aud":["\u202e"],"kubernetes.io":{"pod":{},"serviceaccount":{}}}`) +
		".AAAA")
	known := inspect.Known{Now: now, Keys: givenKeys(f), Issuers: []string{"https://issuer"}}
	f.Fuzz(func(t *testing.T, token string) {
		report := inspect.Evaluate(token, known)
		testutil.Require(t, (report.Verdict == inspect.Valid) == (report.Key != nil && len(report.Findings) == 0),
			"verdict %s with key %v and reasons %v", report.Verdict, report.Key, report.Findings)
		for _, output := range []string{"text", "json", "yaml"} {
			var got bytes.Buffer
			testutil.Must(t, printers.Document(&got, output, &report, report.Text))
			i := strings.LastIndexByte(token, '.')
			testutil.Require(t, i < 0 || len(token)-i <= 40 || !strings.Contains(got.String(), token[i+1:]), "%s holds the signature",
				output)
			if output == "text" &&
				strings.ContainsFunc(got.String(), func(r rune) bool { return r != '\n' && r < ' ' || r >= 0x7f && r < 0xa0 }) {
				t.Fatalf("a control character in %q", got.String())
			}
		}
	})
}
