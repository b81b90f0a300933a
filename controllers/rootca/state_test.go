// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"cmp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/testutil"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	a := newAuthorities(t, "ABCD")
	for name, tc := range map[string]struct {
		reason, file string
		known        string // "-" or current, then previous with their end
		overlap      time.Duration
		off          bool

		published, state, began, ended, returned string
	}{
		"First":     {reason: "nothing was published before", file: "A", known: "-", published: "A", state: "A"},
		"AtRest":    {file: "A", known: "A", published: "A", state: "A"},
		"Changed":   {reason: "the new one comes first", file: "B", known: "A", published: "BA", state: "B A@1h0m0s", began: "A"},
		"InOverlap": {reason: "the end does not move", file: "B", known: "B A@20m", published: "BA", state: "B A@20m0s"},
		"Ended":     {reason: "the file as it is again", file: "B", known: "B A@0s", published: "B", state: "B", ended: "A"},
		"ChangedAgain": {
			reason: "one end for both: none ends before its time", file: "C", known: "B A@20m", published: "CBA", state: "C BA@1h0m0s", began: "B",
		},
		"BothEnd": {file: "C", known: "C BA@0s", published: "C", state: "C", ended: "BA"},
		"ChangedAtTheEnd": {
			reason: "what is over does not join what begins",
			file:   "C", known: "B A@-1s", published: "CB", state: "C B@1h0m0s", began: "B", ended: "A",
		},
		"ShrunkInOverlap": {
			reason: "a certificate that leaves the file without a successor has a whole overlap, too",
			file:   "A", known: "AB C@20m", published: "ABC", state: "A BC@1h0m0s", began: "B",
		},
		"GrownInOverlap": {reason: "none has left the file", file: "BC", known: "B A@20m", published: "BCA", state: "BC A@20m0s"},
		"OneOfTwoIsBack": {
			reason: "the other one keeps its end", file: "CA", known: "C BA@20m", published: "CAB", state: "CA B@20m0s", returned: "A",
		},
		"BackAgain": {
			reason: "what is current has no end, and what was is not forgotten",
			file:   "A", known: "B A@20m", published: "AB", state: "A B@1h0m0s", began: "B", returned: "A",
		},
		"Superset":    {reason: "the person has made the union", file: "BA", known: "A", published: "BA", state: "BA"},
		"Subset":      {reason: "and ends it", file: "B", known: "BA", published: "BA", state: "B A@1h0m0s", began: "A"},
		"Repeated":    {reason: "the file is published as it is, even so", file: "AA", known: "A", published: "AA", state: "AA"},
		"AlsoCurrent": {reason: "an edited state", file: "B", known: "A A@20m", published: "BA", state: "B A@20m0s"},
		"EndedAndCurrent": {
			reason: "an edited state: what has ended does not begin again", file: "B", known: "A A@-1s", published: "B", state: "B", ended: "A",
		},
		"PreviousTwice": {reason: "an edited state", file: "B", known: "B AA@20m", published: "BA", state: "B A@20m0s"},
		"FarFuture": {
			reason: "an edited state, or a clock that went back: no previous CA stays for longer than one that begins now",
			file:   "B", known: "B A@9000h", published: "BA", state: "B A@1h0m0s",
		},
		"Shortened": {
			reason: "restarted with a shorter overlap", file: "B", known: "B A@50m", overlap: 10 * time.Minute, published: "BA", state: "B A@10m0s",
		},
		"Zero":            {reason: "the previous one is compromised", file: "B", known: "A", off: true, published: "B", state: "B", ended: "A"},
		"ZeroInOverlap":   {reason: "restarted to end it", file: "B", known: "B A@50m", off: true, published: "B", state: "B", ended: "A"},
		"UnreadCurrent":   {reason: "the state's current could not be read", file: "B", known: "- A@20m", published: "BA", state: "B A@20m0s"},
		"AllOfThemChange": {file: "CD", known: "AB", published: "CDAB", state: "CD AB@1h0m0s", began: "AB"},
	} {
		t.Run(name, func(t *testing.T) {
			file, overlap := a.bundle(t, tc.file), cmp.Or(tc.overlap, time.Hour)
			if tc.off {
				overlap = 0
			}
			got := plan(file, a.state(t, tc.known, now), now, overlap)
			testutil.Check(t, tc.reason+"\npublished", tc.published, a.read(got.published.PEM()))
			testutil.Check(t, tc.reason+"\nstate", tc.state, a.describe(got.state, now))
			testutil.Check(t, "began", tc.began, a.word(got.began))
			testutil.Check(t, "ended", tc.ended, a.word(got.ended))
			testutil.Check(t, "returned", tc.returned, a.word(got.returned))
			union := len(got.state.previous) > 0
			testutil.Expect(t, (got.published != file) == union, "the file itself is published: %t, want %t", got.published == file, !union)

			// What was decided once is decided again, as after a restart.
			again := plan(file, got.state, now, overlap)
			testutil.Check(t, "state decided again", a.describe(got.state, now), a.describe(again.state, now))
			testutil.Check(t, "PEM decided again", string(got.published.PEM()), string(again.published.PEM()))
			testutil.Expect(t, len(again.began)+len(again.ended) <= 0, "it is reported again")
		})
	}
}

func TestPlanNeverEndsTooEarly(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "AB")
	now := time.Date(2026, 11, 21, 8, 0, 0, 1, time.UTC)
	got := plan(a.bundle(t, "B"), a.state(t, "A", now), now, time.Second)
	testutil.Check(t, "a whole second, rounded up", now.Add(2*time.Second-1), got.state.until)
	later := plan(a.bundle(t, "B"), got.state, now.Add(time.Millisecond), time.Second)
	testutil.Check(t, "the end after a millisecond", got.state.until, later.state.until)
	none := plan(a.bundle(t, "B"), a.state(t, "A", now), now, 0)
	testutil.Check(t, "published without an overlap, although the second is not over", "B", a.read(none.published.PEM()))
}

// What is around the certificates of the file stays in a union.
func TestAUnionHoldsTheFileAsItIs(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "AB")
	for name, end := range map[string]string{"Line": "# the end\n", "NoLine": "# the end"} {
		t.Run(name, func(t *testing.T) {
			text := "# ours\n" + a.pem("B") + end
			file := testutil.Get(ParseBundle([]byte(text)))(t)
			now := time.Now()
			got := plan(file, a.state(t, "A", now), now, time.Hour)
			testutil.Check(t, "published", strings.TrimSuffix(text, "\n")+"\n"+a.pem("A"), string(got.published.PEM()))
			testutil.Check(t, "in the state", text, string(got.state.encode()[keyCurrent]))
			testutil.Check(t, "the file afterwards", text, string(file.PEM()))
		})
	}
}

// texts shows data as a person writes it.
func texts(data map[string][]byte) map[string]string {
	shown := map[string]string{}
	for key, value := range data {
		shown[key] = string(value)
	}
	return shown
}

func TestTheStateForPeople(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	a := newAuthorities(t, "AB")
	testutil.Check(t, "data", map[string]string{
		"schema-version": "1", "current.crt": a.pem("B"), "previous.crt": a.pem("A"), "until": "2026-11-21T09:00:00Z",
	}, texts(a.state(t, "B A@1h", now).encode()))
}

func TestReadingADamagedState(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	a := newAuthorities(t, "ABC")
	for name, tc := range map[string]struct {
		reason  string
		change  func(map[string][]byte)
		want    string
		damage  string // what one line of it must say, "" if there is none
		unknown string // what the error must say
	}{
		"NoSchema": {change: func(d map[string][]byte) { delete(d, "schema-version") }, want: "B A@20m0s", damage: "schema-version is missing"},
		"Newer": {
			reason: "nothing of it is understood", change: func(d map[string][]byte) { d["schema-version"] = []byte("2") }, want: "-",
			unknown: `its schema-version is "2", this program knows "1" only: run the newer version`,
		},
		"NoCurrent": {change: func(d map[string][]byte) { delete(d, "current.crt") }, want: "- A@20m0s", damage: "current.crt: is empty"},
		"NoCertificate": {
			change: func(d map[string][]byte) { d["previous.crt"] = []byte("hello") }, want: "B", damage: "previous.crt: holds no certificate",
		},
		"NoEnd": {
			reason: "it ends like one that begins now", change: func(d map[string][]byte) { delete(d, "until") }, want: "B A@1m0s",
			damage: "until: is no time",
		},
		"Empty":    {reason: "it comes with nothing in it", change: func(d map[string][]byte) { clear(d) }, want: "-"},
		"Added":    {reason: "by hand", change: func(d map[string][]byte) { d["previous.crt"] = []byte(a.pem("AC")) }, want: "B AC@20m0s"},
		"EndAlone": {reason: "by hand", change: func(d map[string][]byte) { delete(d, "previous.crt") }, want: "B"},
		"Fractions": {
			reason: "by hand", change: func(d map[string][]byte) { d["until"] = []byte("2026-11-21T10:05:00.5+02:00") }, want: "B A@5m1s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := a.state(t, "B A@20m", now).encode()
			tc.change(data)
			object := &corev1.Secret{Data: data}
			got, damage, err := decode(object, now, time.Minute)
			testutil.CheckError(t, "error", tc.unknown, err)
			testutil.Expect(t, (damage == "") == (tc.damage == "") && strings.Contains(damage, tc.damage), "damage is %q, want %q", damage,
				tc.damage)
			testutil.Expect(t, !strings.Contains(damage, "MII"), "the damage repeats PEM: %q", damage)
			testutil.Check(t, tc.reason, tc.want, a.describe(got, now))
		})
	}
}
