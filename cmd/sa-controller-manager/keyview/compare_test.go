// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyview_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/cmd/sa-controller-manager/keyview"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func key(t *testing.T, data []byte, state keyview.State) keyview.Key {
	t.Helper()
	private, err := signing.ParsePrivateKey(data)
	if err != nil {
		t.Fatal(err)
	}
	return keyview.Key{PublicKey: private.Public(), State: state, Origin: "a test"}
}

// published is the key as it should be.
func published(key keyview.Key, changes ...func(*signing.PublishedKey)) signing.PublishedKey {
	p := signing.PublishedKey{ID: key.ID, Algorithm: key.Algorithm, Key: key.Key}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func TestCompare(t *testing.T) {
	t.Parallel()
	active, retired := key(t, testkeys.RSA2048(), keyview.Active), key(t, testkeys.P256(), keyview.Retired)
	stranger := key(t, testkeys.P384(), "")
	same := func(key keyview.Key) keyview.Line {
		return keyview.Line{ID: key.ID, Algorithm: key.Algorithm, State: key.State, Result: keyview.Same}
	}
	line := func(key keyview.Key, result keyview.Result, detail string) keyview.Line {
		l := same(key)
		l.Result, l.Detail = result, detail
		return l
	}
	otherID := func(p *signing.PublishedKey) { p.ID = "mine" }
	noID := func(p *signing.PublishedKey) { p.ID = "" }
	noAlgorithm := func(p *signing.PublishedKey) { p.Algorithm = "" }
	otherAlgorithm := func(p *signing.PublishedKey) { p.Algorithm = "PS256" }
	otherKey := func(p *signing.PublishedKey) { p.Key = stranger.Key }
	unreadable := func(p *signing.PublishedKey) { p.Key, p.Problem = nil, "broken" }
	leaked := func(p *signing.PublishedKey) { p.Private = true }
	const gone = "it is not published"
	const leak = "the private key is in the document: whoever has read it can make tokens. Rotate at once"
	cases := map[string]struct {
		reason    string
		published []signing.PublishedKey
		want      []keyview.Line
	}{
		"same":            {"in any order", []signing.PublishedKey{published(retired), published(active)}, []keyview.Line{same(active), same(retired)}},
		"no algorithm":    {"RFC 7517 does not demand it", []signing.PublishedKey{published(retired), published(active, noAlgorithm)}, []keyview.Line{same(active), same(retired)}},
		"missing":         {"its tokens are refused", []signing.PublishedKey{published(active)}, []keyview.Line{same(active), line(retired, keyview.Missing, gone)}},
		"nothing":         {"", nil, []keyview.Line{line(active, keyview.Missing, gone), line(retired, keyview.Missing, gone)}},
		"extra":           {"tokens of a stranger are accepted", []signing.PublishedKey{published(stranger), published(active), published(retired)}, []keyview.Line{same(active), same(retired), {ID: stranger.ID, Algorithm: "ES384", Result: keyview.Extra, Detail: "it is no key of the ring"}}},
		"unreadable one":  {"nobody can verify with it", []signing.PublishedKey{{ID: "x", Problem: "broken"}, published(active), published(retired)}, []keyview.Line{same(active), same(retired), {ID: "x", Result: keyview.Extra, Detail: "it is no key of the ring, and cannot be read: broken"}}},
		"other key":       {"worse than none", []signing.PublishedKey{published(active, otherKey), published(retired)}, []keyview.Line{line(active, keyview.Differs, "another key is published under its ID"), same(retired)}},
		"both":            {"which one counts depends on the reader", []signing.PublishedKey{published(active, otherKey), published(active), published(retired)}, []keyview.Line{line(active, keyview.Differs, "another key is published under its ID"), same(retired)}},
		"both, reversed":  {"", []signing.PublishedKey{published(active), published(active, otherKey), published(retired)}, []keyview.Line{line(active, keyview.Differs, "another key is published under its ID"), same(retired)}},
		"other ID":        {"found by no token", []signing.PublishedKey{published(active, otherID), published(retired)}, []keyview.Line{line(active, keyview.Differs, `it is published with the key ID "mine", which its tokens do not bear`), same(retired)}},
		"no ID":           {"", []signing.PublishedKey{published(active, noID), published(retired)}, []keyview.Line{line(active, keyview.Differs, "it is published without a key ID"), same(retired)}},
		"other algorithm": {"the token's would be refused", []signing.PublishedKey{published(active, otherAlgorithm), published(retired)}, []keyview.Line{line(active, keyview.Differs, `it is published with the algorithm "PS256"`), same(retired)}},
		"cannot be read":  {"", []signing.PublishedKey{published(active, unreadable), published(retired)}, []keyview.Line{line(active, keyview.Differs, "what is published under its ID cannot be read: broken"), same(retired)}},
		"leaked":          {"somebody exported the wrong half", []signing.PublishedKey{published(active), published(active, leaked), published(retired)}, []keyview.Line{line(active, keyview.Leaked, leak), same(retired)}},
		"a leaked one":    {"of somebody else", []signing.PublishedKey{published(active), published(retired), published(stranger, leaked)}, []keyview.Line{same(active), same(retired), {ID: stranger.ID, Algorithm: "ES384", Result: keyview.Leaked, Detail: leak}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A key may be in two files.
			got := keyview.Compare([]keyview.Key{active, retired, active}, tc.published)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			drifted := !strings.HasPrefix(name, "same") && name != "no algorithm"
			if keyview.Drifted(got) != drifted {
				t.Errorf("%s: drifted is %t, want %t", tc.reason, !drifted, drifted)
			}
		})
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	lines := []keyview.Line{
		{ID: "a", Algorithm: "ES256", State: keyview.Active, Result: keyview.Same},
		{ID: "evil\x1b[2J\n\u202e", Result: keyview.Extra, Detail: "why"},
	}
	cases := map[string]string{
		"table": "KEY-ID                      ALGORITHM   STATE    RESULT   DETAIL\n" +
			"a                           ES256       active   same     \n" +
			"evil\\u001b[2J\\u000a\\u202e   <none>      <none>   extra    why\n",
		"json": `{
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
		if err := keyview.Print(&got, lines, output); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.String()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", output, diff)
		}
	}
}

func TestUsable(t *testing.T) {
	t.Parallel()
	active := key(t, testkeys.RSA2048(), keyview.Active)
	got := keyview.Usable([]signing.PublishedKey{
		{ID: "broken", Problem: "x"}, published(active, func(p *signing.PublishedKey) { p.ID, p.Algorithm = "theirs", "" }),
	}, "somewhere")
	want := active
	want.ID, want.State, want.Origin = "theirs", keyview.Published, "somewhere"
	if diff := cmp.Diff([]keyview.Key{want}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
