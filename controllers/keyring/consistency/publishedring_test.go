// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
)

// TestJudge: the ring of this process is of generation 4, "main"; A signs, B is retired.
func TestJudge(t *testing.T) {
	t.Parallel()
	a, b, c := testkeys.Parse(newPEM()), testkeys.Parse(oldPEM()), testkeys.Parse(strangePEM())
	line := func(branch string, generation int64, keys ...signing.Key) PublishedRing {
		return published(stateOf(branch, generation, keys...))
	}
	retired := func(key *signing.PrivateKey) signing.Key { return key.Public().As(signing.Retired) }
	own := line("main", 4, a.As(signing.Active), retired(b))
	gone := func(ring PublishedRing, ids ...string) PublishedRing { ring.Pruned = ids; return ring }
	cases := map[string]struct {
		reason string
		rings  []PublishedRing
		want   drift
		// What is not done with A.
		noFilling, noSigning bool
	}{
		"Nobody":     {want: unpublished},
		"Same":       {rings: []PublishedRing{own, own}, want: inSync},
		"Older":      {reason: "that replica reports it", rings: []PublishedRing{own, line("main", 3, b.As(signing.Active))}, want: inSync},
		"NotMine":    {rings: []PublishedRing{line("main", 3, b.As(signing.Active))}, want: unpublished},
		"SameForked": {reason: "neither is newer", rings: []PublishedRing{own, line("other", 4, b.As(signing.Active))}, want: forked},
		"OlderFork":  {rings: []PublishedRing{own, line("other", 3, c.As(signing.Active))}, want: forked},
		"Behind": {
			reason: "between the copy and a change that leaves A to sign",
			rings:  []PublishedRing{own, line("main", 5, a.As(signing.Active), retired(b), c.As(signing.Next))}, want: behind,
		},
		"BehindActivate": {
			reason: "between activate and the copy all accept A, and a Secret filled with it would need another token",
			rings:  []PublishedRing{own, line("main", 6, c.As(signing.Active), retired(a), retired(b))}, want: behind, noFilling: true,
		},
		"BehindPrune": {rings: []PublishedRing{own, gone(line("main", 5, a.As(signing.Active)), b.ID())}, want: behind},
		"Pruned": {
			reason: "this host was away during the rotation",
			rings:  []PublishedRing{own, gone(line("main", 9, c.As(signing.Active)), a.ID(), b.ID())}, want: lost, noFilling: true, noSigning: true,
		},
		"NewerFork": {
			reason: "the ring was changed here and there, and A never came there",
			rings:  []PublishedRing{own, line("other", 5, b.As(signing.Active))}, want: lost, noFilling: true, noSigning: true,
		},
		"NewerForkWithA": {
			reason: "B is gone without a record", rings: []PublishedRing{own, line("other", 5, a.As(signing.Active))}, want: forked,
		},
		"OneOfMany": {
			rings: []PublishedRing{own, line("main", 5, a.As(signing.Active), retired(b)), line("main", 6, c.As(signing.Active)), {Replica: "x"}},
			want:  lost, noFilling: true, noSigning: true,
		},
		"Unreadable": {rings: []PublishedRing{own, {Replica: "x"}}, want: unreadable},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			state := stateOf("main", 4, a.As(signing.Active), retired(b))
			c := &Controller{Config: Config{State: func() ring.State { return state }}}
			c.rings.Store(&tc.rings)
			found := judge(state, tc.rings)
			if found.drift != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, found.drift, tc.want)
			}
			if err := c.MayFill(); (err != nil) != tc.noFilling {
				t.Errorf("%s: MayFill: %v", tc.reason, err)
			}
			if err := c.MayReissue(); (err == nil) != (tc.want == inSync) {
				t.Errorf("%s: MayReissue: %v", tc.reason, err)
			}
			if err := c.MaySign(); (err != nil) != tc.noSigning {
				t.Errorf("%s: MaySign: %v", tc.reason, err)
			}
			if text := found.describe(state) + found.remedy(); strings.Contains(text, "%!") || strings.Contains(text, "\n") {
				t.Errorf("it says %q", text)
			}
		})
	}
}

func TestPublishedRings(t *testing.T) {
	t.Parallel()
	line, err := json.Marshal(published(ringOf(3, newPEM(), oldPEM())))
	testutil.Must(t, err)
	good := &corev1.Secret{Data: stateobject.Stamp(map[string][]byte{ringPrefix + "replica-0": line})}
	with := func(key, value string) *corev1.Secret {
		secret := good.DeepCopy()
		secret.Data[key] = []byte(value)
		return secret
	}
	for name, tc := range map[string]struct {
		secret *corev1.Secret
		rings  int
		want   string // in the error
	}{
		"None":        {},
		"Empty":       {secret: &corev1.Secret{}}, // as it comes with the permissions
		"One":         {secret: good, rings: 1},
		"OtherSchema": {secret: with(stateobject.VersionKey, "2"), want: `schema-version is "2"`},
		"NoJSON":      {secret: with("replica.x", "{"), rings: 2, want: "replica.x: it is no published key ring"},
		"NoVersion":   {secret: with("replica.x", `{"host":"x"}`), rings: 2, want: "replica.x: it is no published key ring"},
	} {
		t.Run(name, func(t *testing.T) {
			rings, err := PublishedRings(tc.secret)
			if len(rings) != tc.rings || (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%d rings, %v; want %d and %q", len(rings), err, tc.rings, tc.want)
			}
		})
	}
}
