// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"errors"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	const plain = "e30.e30.c2lnYQ"
	cases := map[string]struct {
		reason string
		token  string
		want   string // "" if it stays as it is
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
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := tc.want
			if want == "" {
				want = tc.token
			}
			if got := tokens.Canonical(tc.token); got != want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, want)
			}
		})
	}
}

// TestOnlyTheCanonicalSpellingVerifies: what is re-issued by our own decision is no token that
// somebody has edited.
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
		if tokens.Canonical(token) != good {
			t.Errorf("%s: the canonical spelling is another one", name)
		}
		if got, err := tokens.VerifyLegacy(tokens.Canonical(token), ring()); err != nil || got.KeyID != key.ID() {
			t.Errorf("%s: as it was issued: %v, %v", name, got, err)
		}
	}
}
