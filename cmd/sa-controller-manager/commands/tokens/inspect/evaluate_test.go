// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect_test

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/cmd/sa-controller-manager/commands/tokens/inspect"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

var (
	now     = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	account = tokens.Account{Namespace: "shop", Name: "robot", UID: "u-1"}
)

// bound is a token of an hour, issued at the time.
func bound(tb testing.TB, at time.Time) string {
	tb.Helper()
	issuer := tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims, tokens.WithClock(clocktesting.NewFakePassiveClock(at)))
	token, err := issuer.Bound(tb.Context(),
		tokens.BoundRequest{Issuer: "https://issuer", Account: account, Audiences: []string{"a", "b"}, Lifetime: time.Hour})
	testutil.Must(tb, err)
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
	accepted := &inspect.Review{Authenticated: true, User: "system:serviceaccount:shop:robot"}
	respelled := good[:len(good)-1] + string(good[len(good)-1]+1) // of 86 digits the last one is A, Q, g or w
	payloadAt := strings.Index(old, ".") + 1
	cases := map[string]struct {
		reason, token string
		known         inspect.Known
		want          inspect.Verdict
		because       []string
		notes         int
	}{
		"good": {"", good, inspect.Known{Keys: givenKeys(t), Issuers: []string{"https://issuer"}}, inspect.Valid, nil, 1},
		"legacy": {
			"no issuer of bound tokens counts", old, inspect.Known{Keys: givenKeys(t), Issuers: []string{"https://issuer"}}, inspect.Valid, nil, 1,
		},
		"one of several": {
			"the former issuers are accepted too", good, inspect.Known{Keys: givenKeys(t), Issuers: []string{"https://new", "https://issuer"}},
			inspect.Valid, nil, 1,
		},
		"expired": {
			"", bound(t, now.Add(-3*time.Hour)), inspect.Known{Keys: givenKeys(t)}, inspect.Invalid, []string{"it has expired 120m ago"}, 2,
		},
		"just expired": {
			"", bound(t, now.Add(-time.Hour-time.Second)), inspect.Known{Keys: givenKeys(t)}, inspect.Invalid, []string{"it has expired 1s ago"}, 2,
		},
		"expires now": {"", bound(t, now.Add(-time.Hour)), inspect.Known{Keys: givenKeys(t)}, inspect.Valid, nil, 2},
		"not yet": {
			"", bound(t, now.Add(2*time.Hour)), inspect.Known{Keys: givenKeys(t)}, inspect.Invalid,
			[]string{"it is not valid yet: it will be in 120m", "it says that it will be issued in 120m: a clock is wrong"}, 2,
		},
		"other issuer": {
			"", good, inspect.Known{Keys: givenKeys(t), Issuers: []string{"https://other"}}, inspect.Invalid,
			[]string{"the issuer is another one than https://other"}, 1,
		},
		"none of them": {
			"", good, inspect.Known{Keys: givenKeys(t), Issuers: []string{"a", "b"}}, inspect.Invalid, []string{"the issuer is none of a, b"}, 1,
		},
		"unknown key": {
			"", good, inspect.Known{Keys: givenKeys(t)[:1]}, inspect.Invalid, []string{"none of the 1 keys that were given has its key ID"}, 2,
		},
		"tampered": {
			"", tampered, inspect.Known{Keys: givenKeys(t)}, inspect.Invalid,
			[]string{"the signature is wrong: the key that it names has not made it"}, 2,
		},
		"no key ID": {
			"the header is signed too", noKeyID, inspect.Known{Keys: givenKeys(t)}, inspect.Invalid,
			[]string{"it has no key ID, and none of the keys that were given made its signature"}, 2,
		},
		"everything": {
			"each reason is a finding", bound(t, now.Add(-3*time.Hour)), inspect.Known{Keys: givenKeys(t)[:1], Issuers: []string{"x"}},
			inspect.Invalid,
			[]string{"none of the 1 keys that were given has its key ID", "it has expired 120m ago", "the issuer is another one than x"}, 1,
		},
		"no keys": {
			"exit code 1", good, inspect.Known{}, inspect.Untold,
			[]string{"there is no key to verify the signature with: give --service-account-key-file, --jwks or --cluster"}, 2,
		},
		"expired, no keys": {
			"that is certain", bound(t, now.Add(-3*time.Hour)), inspect.Known{}, inspect.Invalid, []string{"it has expired 120m ago"}, 2,
		},
		"malformed": {
			"and where", "e30.e30", inspect.Known{Keys: givenKeys(t)}, inspect.Invalid, []string{"malformed token: not three segments"}, 0,
		},
		"malformed payload": {
			"and where", "e30.!.e30", inspect.Known{Keys: givenKeys(t)}, inspect.Invalid, []string{"malformed token: the payload is not base64url"},
			0,
		},
		"spare bits": {
			"kube-apiserver does not mind, and others may", respelled, inspect.Known{Keys: givenKeys(t), Issuers: []string{"https://issuer"}},
			inspect.Valid, nil, 2,
		},
		"white space": {"likewise", old[:3] + "\t" + old[3:] + "\n", inspect.Known{Keys: givenKeys(t)}, inspect.Valid, nil, 2},
		"wrapped":     {"likewise", strings.ReplaceAll(old, ".", ".\n"), inspect.Known{Keys: givenKeys(t)}, inspect.Valid, nil, 2},
		"blank in payload": {
			"kube-apiserver minds", old[:payloadAt+3] + " " + old[payloadAt+3:], inspect.Known{Keys: givenKeys(t)}, inspect.Invalid,
			[]string{"malformed token: the payload is not base64url"}, 0,
		},
		"tampered, spaced": {
			"", tampered + "\n", inspect.Known{Keys: givenKeys(t)}, inspect.Invalid,
			[]string{"the signature is wrong: the key that it names has not made it"}, 3,
		},
		"accepted": {
			"kube-apiserver's word counts", good, inspect.Known{Review: accepted, Issuers: []string{"https://issuer"}}, inspect.Valid, nil, 0,
		},
		"accepted anyhow": {
			"an external signer may keep keys out of the JWKS", good,
			inspect.Known{Review: accepted, Keys: givenKeys(t)[:1], Issuers: []string{"x"}}, inspect.Valid, nil, 2,
		},
		"refused": {
			"its account is gone", good,
			inspect.Known{Review: &inspect.Review{Error: "gone"}, Keys: givenKeys(t), Issuers: []string{"https://issuer"}}, inspect.Invalid,
			[]string{"kube-apiserver refuses it: gone"}, 0,
		},
		"refused silently": {
			"", old, inspect.Known{Review: &inspect.Review{}, Keys: givenKeys(t)}, inspect.Invalid,
			[]string{"kube-apiserver refuses it: it gives no reason"}, 0,
		},
		"stranger": {
			"a token of another program", segment(`{"alg":"ES256","kid":"x"}`) + "." + segment(`{"iss":"https://issuer","exp":1}`) + ".AA",
			inspect.Known{}, inspect.Invalid, []string{"it has expired 56y ago"}, 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.known.Now = now
			got := inspect.Evaluate(tc.token, tc.known)
			if got.Verdict != tc.want || len(got.Notes) != tc.notes {
				t.Errorf("%s: verdict %s, want %s; notes %v, want %d", tc.reason, got.Verdict, tc.want, got.Notes, tc.notes)
			}
			var reasons []string
			for _, finding := range got.Findings {
				if finding.Code == "" {
					t.Errorf("%s: %q has no code", tc.reason, finding.Message)
				}
				reasons = append(reasons, finding.Message)
			}
			testutil.Check(t, tc.reason+": reasons", tc.because, reasons)
		})
	}
}

func TestSigningKeyIsNamed(t *testing.T) {
	t.Parallel()
	got := inspect.Evaluate(legacy(t), inspect.Known{Now: now, Keys: givenKeys(t)})
	want := givenKeys(t)[1]
	testutil.Check(t, "result", &want, got.Key)
	testutil.Check(t, "origin", "two", got.KeyOrigin)
}

func TestPrint(t *testing.T) {
	t.Parallel()
	token := bound(t, now.Add(-time.Minute))
	signature := token[strings.LastIndex(token, ".")+1:]
	for _, output := range []string{"text", "json", "yaml"} {
		report := inspect.Evaluate(token, inspect.Known{Now: now, Keys: givenKeys(t)})
		var got bytes.Buffer
		testutil.Must(t, report.Print(&got, output))
		for _, secret := range append(strings.Split(token, "."), token) {
			if strings.Contains(got.String(), secret) {
				t.Errorf("%s holds a part of the token:\n%s", output, got.String())
			}
		}
		clitest.Golden(t, "valid."+output, regexp.MustCompile(`[0-9a-f-]{36}`).ReplaceAllString(got.String(), "JTI"))
		report = inspect.Evaluate(token, inspect.Known{Now: now, Keys: givenKeys(t), ShowSignature: true})
		if err := report.Print(&got, output); err != nil || !strings.Contains(got.String(), signature) {
			t.Errorf("%s: no signature, %v", output, err)
		}
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
		if err := report.Print(&got, output); err != nil {
			t.Fatalf("%s: %v", output, err)
		}
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
	f.Add(segment(`{"kid":"\u0000"}`) + "." + segment(`{"exp":1e3,"aud":["\u202e"],"kubernetes.io":{"pod":{},"serviceaccount":{}}}`) + ".AAAA")
	known := inspect.Known{Now: now, Keys: givenKeys(f), Issuers: []string{"https://issuer"}}
	f.Fuzz(func(t *testing.T, token string) {
		report := inspect.Evaluate(token, known)
		if (report.Verdict == inspect.Valid) != (report.Key != nil && len(report.Findings) == 0) {
			t.Fatalf("verdict %s with key %v and reasons %q", report.Verdict, report.Key, report.Findings)
		}
		for _, output := range []string{"text", "json", "yaml"} {
			var got bytes.Buffer
			if err := report.Print(&got, output); err != nil {
				t.Fatalf("%s: %v", output, err)
			}
			if i := strings.LastIndexByte(token, '.'); i >= 0 && len(token)-i > 40 && strings.Contains(got.String(), token[i+1:]) {
				t.Fatalf("%s holds the signature", output)
			}
			if output == "text" && strings.ContainsFunc(got.String(), func(r rune) bool { return r != '\n' && r < ' ' || r >= 0x7f && r < 0xa0 }) {
				t.Fatalf("a control character in %q", got.String())
			}
		}
	})
}
