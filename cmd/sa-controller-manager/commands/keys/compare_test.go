// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/testkeys"
)

func key(pem []byte, state State) signing.Key {
	return found(testkeys.Parse(pem).Public(), state, "a test")
}

// inJWKS is the key as it should be.
func inJWKS(key signing.Key, changes ...func(*signing.PublicKey)) signing.PublicKey {
	p := signing.PublicKey{ID: key.ID, Algorithm: key.Algorithm, Key: key.Key}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func TestCompare(t *testing.T) {
	t.Parallel()
	active, retired := key(testkeys.RSA2048(), signing.Active), key(testkeys.P256(), signing.Retired)
	stranger := key(testkeys.P384(), "")
	same := func(key signing.Key) Line {
		return Line{ID: key.ID, Algorithm: key.Algorithm, State: key.Role, Result: published.Same}
	}
	line := func(key signing.Key, result published.Result, detail string) Line {
		l := same(key)
		l.Result, l.Detail = result, detail
		return l
	}
	otherID := func(p *signing.PublicKey) { p.ID = "mine" }
	noID := func(p *signing.PublicKey) { p.ID = "" }
	noAlgorithm := func(p *signing.PublicKey) { p.Algorithm = "" }
	otherAlgorithm := func(p *signing.PublicKey) { p.Algorithm = "PS256" }
	otherKey := func(p *signing.PublicKey) { p.Key = stranger.Key }
	unreadable := func(p *signing.PublicKey) { p.Key, p.Problem = nil, "broken" }
	leaked := func(p *signing.PublicKey) { p.Problem = signing.ProblemPrivate }
	const gone = "it is not published"
	const leak = "the document contains the private key, with which every reader can sign tokens: rotate now"
	cases := map[string]struct {
		reason    string
		published []signing.PublicKey
		want      []Line
	}{
		"same": {"in any order", []signing.PublicKey{inJWKS(retired), inJWKS(active)}, []Line{same(active), same(retired)}},
		"no algorithm": {
			"RFC 7517 does not demand it", []signing.PublicKey{inJWKS(retired), inJWKS(active, noAlgorithm)}, []Line{same(active), same(retired)},
		},
		"missing": {
			"its tokens are refused", []signing.PublicKey{inJWKS(active)}, []Line{same(active), line(retired, published.Missing, gone)},
		},
		"nothing": {"", nil, []Line{line(active, published.Missing, gone), line(retired, published.Missing, gone)}},
		"extra": {
			"tokens of a stranger are accepted", []signing.PublicKey{inJWKS(stranger), inJWKS(active), inJWKS(retired)},
			[]Line{same(active), same(retired), {ID: stranger.ID, Algorithm: "ES384", Result: published.Extra, Detail: "it is no key of the ring"}},
		},
		"unreadable one": {
			"nobody can verify with it", []signing.PublicKey{{ID: "x", Problem: "broken"}, inJWKS(active), inJWKS(retired)},
			[]Line{same(active), same(retired), {ID: "x", Result: published.Extra, Detail: "it is no key of the ring, and cannot be read: broken"}},
		},
		"other key": {
			"worse than none", []signing.PublicKey{inJWKS(active, otherKey), inJWKS(retired)},
			[]Line{line(active, published.Differs, "another key is published under its ID"), same(retired)},
		},
		"both": {
			"which one counts depends on the reader", []signing.PublicKey{inJWKS(active, otherKey), inJWKS(active), inJWKS(retired)},
			[]Line{line(active, published.Differs, "another key is published under its ID"), same(retired)},
		},
		"both, reversed": {
			"", []signing.PublicKey{inJWKS(active), inJWKS(active, otherKey), inJWKS(retired)},
			[]Line{line(active, published.Differs, "another key is published under its ID"), same(retired)},
		},
		"other ID": {
			"found by no token", []signing.PublicKey{inJWKS(active, otherID), inJWKS(retired)},
			[]Line{line(active, published.Differs, `it is published with the key ID "mine", which its tokens do not bear`), same(retired)},
		},
		"no ID": {
			"", []signing.PublicKey{inJWKS(active, noID), inJWKS(retired)},
			[]Line{line(active, published.Differs, "it is published without a key ID"), same(retired)},
		},
		"other algorithm": {
			"the token's would be refused", []signing.PublicKey{inJWKS(active, otherAlgorithm), inJWKS(retired)},
			[]Line{line(active, published.Differs, `it is published with the algorithm "PS256"`), same(retired)},
		},
		"cannot be read": {
			"", []signing.PublicKey{inJWKS(active, unreadable), inJWKS(retired)},
			[]Line{line(active, published.Differs, "what is published under its ID cannot be read: broken"), same(retired)},
		},
		"leaked": {
			"somebody exported the wrong half", []signing.PublicKey{inJWKS(active), inJWKS(active, leaked), inJWKS(retired)},
			[]Line{line(active, published.Leaked, leak), same(retired)},
		},
		"a leaked one": {
			"of somebody else", []signing.PublicKey{inJWKS(active), inJWKS(retired), inJWKS(stranger, leaked)},
			[]Line{same(active), same(retired), {ID: stranger.ID, Algorithm: "ES384", Result: published.Leaked, Detail: leak}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A key may be in two files.
			got := Compare([]signing.Key{active, retired, active}, tc.published)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			drifted := !strings.HasPrefix(name, "same") && name != "no algorithm"
			if Drifted(got) != drifted {
				t.Errorf("%s: drifted is %t, want %t", tc.reason, !drifted, drifted)
			}
		})
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	lines := []Line{
		{ID: "a", Algorithm: "ES256", State: signing.Active, Result: published.Same},
		{ID: "evil\x1b[2J\n\u202e", Result: published.Extra, Detail: "why"},
	}
	cases := map[string]string{
		"table": "KEY-ID                      ALGORITHM   STATE    RESULT   DETAIL\n" +
			"a                           ES256       active   same     \n" +
			"evil\\u001b[2J\\u000a\\u202e   <none>      <none>   extra    why\n",
		"json": `{
  "apiVersion": "sa-controller-manager/v1",
  "kind": "KeyComparison",
  "keys": [
    {
      "keyID": "a",
      "algorithm": "ES256",
      "state": "active",
      "result": "same"
    },
    {
      "keyID": "evil\u001b[2J\n` + "\u202e" + `",
      "result": "extra",
      "detail": "why"
    }
  ]
}
`,
	}
	for output, want := range cases {
		var got bytes.Buffer
		if err := Print(&got, lines, output); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.String()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", output, diff)
		}
	}
}

func TestUsable(t *testing.T) {
	t.Parallel()
	active := key(testkeys.RSA2048(), signing.Active)
	got := Usable([]signing.PublicKey{
		{ID: "broken", Problem: "x"}, inJWKS(active, func(p *signing.PublicKey) { p.ID, p.Algorithm = "theirs", "" }),
	}, "somewhere")
	want := active
	want.ID, want.Role, want.Origin = "theirs", Published, "somewhere"
	if diff := cmp.Diff([]signing.Key{want}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
