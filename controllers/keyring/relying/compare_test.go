// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package relying

import (
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

func key(pem []byte, role signing.Role) signing.Key { return testkeys.Parse(pem).Public().As(role) }

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
		return Line{ID: key.ID, Algorithm: key.Algorithm, State: key.Role, Result: Same}
	}
	line := func(key signing.Key, result Result, detail string) Line {
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
	const gone, foreign, another = "it is not published", "it is none of the given keys", "another key is published under its ID"
	const leak = "the document contains the private key, with which every reader can sign tokens: rotate now"
	cases := map[string]struct {
		reason    string
		published []signing.PublicKey
		want      []Line
		change    func(*signing.PublicKey) // of the active key, instead of both
		differs   string
	}{
		"same": {
			reason: "in any order", published: []signing.PublicKey{inJWKS(retired), inJWKS(active)},
			want: []Line{same(active), same(retired)},
		},
		"no algorithm": {
			reason: "RFC 7517 does not demand it", published: []signing.PublicKey{inJWKS(retired), inJWKS(active, noAlgorithm)},
			want: []Line{same(active), same(retired)},
		},
		"missing": {
			reason: "its tokens are refused", published: []signing.PublicKey{inJWKS(active)},
			want: []Line{same(active), line(retired, Missing, gone)},
		},
		"extra": {
			reason: "tokens of a stranger are accepted", published: []signing.PublicKey{inJWKS(stranger), inJWKS(active), inJWKS(retired)},
			want: []Line{same(active), same(retired), {ID: stranger.ID, Algorithm: "ES384", Result: Extra, Detail: foreign}},
		},
		"unreadable one": {
			reason:    "nobody can verify with it",
			published: []signing.PublicKey{{ID: "x", Problem: "broken"}, inJWKS(active), inJWKS(retired)},
			want:      []Line{same(active), same(retired), {ID: "x", Result: Extra, Detail: foreign + ", and cannot be read: broken"}},
		},
		"other key": {reason: "worse than none", change: otherKey, differs: another},
		"other ID": {
			reason: "found by no token", change: otherID, differs: `it is published with the key ID "mine", which its tokens do not bear`,
		},
		"no ID": {change: noID, differs: "it is published with the key ID \"\", which its tokens do not bear"},
		"other algorithm": {
			reason: "the token's would be refused", change: otherAlgorithm, differs: `it is published with the algorithm "PS256"`,
		},
		"cannot be read": {change: unreadable, differs: "what is published under its ID cannot be read: broken"},
		"both": {
			reason:    "which one counts depends on the reader",
			published: []signing.PublicKey{inJWKS(active, otherKey), inJWKS(active), inJWKS(retired)},
			want:      []Line{line(active, Differs, another), same(retired)},
		},
		"leaked": {
			reason:    "the user exported the wrong half",
			published: []signing.PublicKey{inJWKS(active), inJWKS(active, leaked), inJWKS(retired)},
			want:      []Line{line(active, Leaked, leak), same(retired)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.change != nil {
				tc.published = []signing.PublicKey{inJWKS(active, tc.change), inJWKS(retired)}
				tc.want = []Line{line(active, Differs, tc.differs), same(retired)}
			}
			// A key may be in two files.
			got := Compare([]signing.Key{active, retired, active}, tc.published)
			testutil.Check(t, tc.reason, tc.want, got)
		})
	}
}
