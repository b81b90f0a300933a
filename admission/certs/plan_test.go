// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/x509"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/stateobject"
)

const day = 24 * time.Hour

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// cast are the CAs of the table, each born some days after start and living a year.
type cast map[string]*authority

func newCast(t testing.TB, born map[string]int) cast {
	t.Helper()
	c := cast{}
	for name, days := range born {
		made, err := newAuthority(start.Add(time.Duration(days)*day), 365*day)
		if err != nil {
			t.Fatal(err)
		}
		c[name] = made
	}
	return c
}

func (c cast) cert(name string) *x509.Certificate {
	if name == "" {
		return nil
	}
	return c[name].cert
}

func (c cast) name(certificate *x509.Certificate) string {
	for name, one := range c {
		if certificate != nil && one.cert.Equal(certificate) {
			return name
		}
	}
	return ""
}

// names are a state by the names of its CAs.
type names struct{ Active, Next, Previous string }

func (c cast) state(n names) *state {
	s := &state{previous: c.cert(n.Previous)}
	if n.Active != "" {
		s.active = c[n.Active]
	}
	if n.Next != "" {
		s.next = c[n.Next]
	}
	return s
}

func (c cast) names(s state) names {
	n := names{Previous: c.name(s.previous)}
	if s.active != nil {
		n.Active = c.name(s.active.cert)
	}
	if s.next != nil {
		n.Next = c.name(s.next.cert)
	}
	return n
}

func (c cast) secret(t testing.TB, n names) *corev1.Secret {
	t.Helper()
	secret, err := c.state(n).writeInto(emptySecret(DefaultSecretNamespace, DefaultSecretName))
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func with(secret *corev1.Secret, key, value string) *corev1.Secret {
	secret = secret.DeepCopy()
	secret.Data[key] = []byte(value)
	return secret
}

// What is no version that a program of ours could have written is damage.
func TestReadVersion(t *testing.T) {
	t.Parallel()
	whole := newCast(t, map[string]int{"a": 0}).secret(t, names{Active: "a"})
	for version, want := range map[string]struct{ damaged, foreign bool }{
		"1":     {},
		"2":     {foreign: true},
		"10":    {foreign: true},
		"":      {damaged: true},
		"0":     {damaged: true},
		"-2":    {damaged: true},
		"+2":    {damaged: true},
		"02":    {damaged: true},
		" ":     {damaged: true},
		"2 ":    {damaged: true},
		"1\n":   {damaged: true},
		"2.0":   {damaged: true},
		"0x2":   {damaged: true},
		"zwei":  {damaged: true},
		"\xff2": {damaged: true},
	} {
		found := read(with(whole, stateobject.VersionKey, version))
		if got := found.damage != ""; got != want.damaged || (found.foreign != "") != want.foreign {
			t.Errorf("version %q: damage %q, foreign %q; want damaged %t, foreign %t", version, found.damage, found.foreign, want.damaged, want.foreign)
		}
		if !want.foreign && found.active == nil {
			t.Errorf("version %q: the CA beside it was not read", version)
		}
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	// "old" is a year older than "a" and "b", "late" is made when those near their end.
	c := newCast(t, map[string]int{"a": 0, "b": 0, "old": -364, "older": -400, "late": 360, "fresh": 0})
	a := c.secret(t, names{Active: "a"})
	held := func(n names) *state { return c.state(n) }
	type outcome struct {
		Action action
		Wanted names
	}
	for name, tc := range map[string]struct {
		reason string
		secret *corev1.Secret
		held   *state
		inUse  string
		day    int
		known  bool
		want   outcome
	}{
		"no Secret": {
			reason: "the replica that starts first makes the CA",
			want:   outcome{create, names{Active: "fresh"}},
		},
		"whole": {
			reason: "what is right is not written",
			secret: a,
			want:   outcome{keep, names{Active: "a"}},
		},
		"deleted": {
			reason: "leaves in use stay valid and a successor is announced",
			held:   held(names{Active: "a", Previous: "b"}),
			want:   outcome{create, names{Active: "a", Next: "fresh", Previous: "b"}},
		},
		"deleted during a rollover": {
			reason: "deleting again and again makes no further keys",
			held:   held(names{Active: "a", Next: "b"}),
			want:   outcome{create, names{Active: "a", Next: "b"}},
		},
		"deleted while known": {
			reason: "what nobody can read in the API is not promoted",
			held:   held(names{Active: "a", Next: "b"}),
			known:  true,
			want:   outcome{create, names{Active: "a", Next: "b"}},
		},
		"deleted and expired": {
			reason: "an expired CA comes back for nobody; its announced successor takes over",
			held:   held(names{Active: "older"}),
			want:   outcome{create, names{Active: "fresh"}},
		},
		"emptied": {
			reason: "all damage is repaired from memory",
			secret: emptySecret("kube-system", "x"),
			held:   held(names{Active: "a", Next: "b", Previous: "old"}),
			want:   outcome{update, names{Active: "a", Next: "b", Previous: "old"}},
		},
		"emptied before we came": {
			reason: "nothing to save",
			secret: emptySecret("kube-system", "x"),
			want:   outcome{update, names{Active: "fresh"}},
		},
		"key lost before we came": {
			reason: "replicas that hold the CA put it back, or keep it in the caBundle",
			secret: with(a, keyActiveKey, "rubbish"),
			want:   outcome{update, names{Active: "fresh"}},
		},
		"key of another CA": {
			reason: "a pair that does not match is damage",
			secret: with(a, keyActiveKey, string(c.secret(t, names{Active: "b"}).Data[keyActiveKey])),
			held:   held(names{Active: "a"}),
			want:   outcome{update, names{Active: "a"}},
		},
		"key lost during a rollover": {
			reason: "the announced CA is in the caBundle already",
			secret: with(c.secret(t, names{Active: "a", Next: "b"}), keyActiveKey, ""),
			want:   outcome{update, names{Active: "b"}},
		},
		"announced CA damaged": {
			reason: "memory has it",
			secret: with(c.secret(t, names{Active: "a", Next: "b"}), keyNextCert, "rubbish"),
			held:   held(names{Active: "a", Next: "b"}),
			want:   outcome{update, names{Active: "a", Next: "b"}},
		},
		"previous CA damaged": {
			reason: "what is lost is left out, the rest stays",
			secret: with(c.secret(t, names{Active: "a", Previous: "b"}), keyPreviousCert, "rubbish"),
			want:   outcome{update, names{Active: "a"}},
		},
		"version missing": {
			reason: "somebody rebuilt the Secret by hand",
			secret: with(a, stateobject.VersionKey, ""),
			want:   outcome{update, names{Active: "a"}},
		},
		"version of the future": {
			reason: "an older program must not destroy what a newer one wrote",
			secret: with(a, stateobject.VersionKey, "2"),
			held:   held(names{Active: "a"}),
			want:   outcome{refuse, names{}},
		},
		"version of the far future": {
			reason: "it need not fit into any type of ours",
			secret: with(a, stateobject.VersionKey, "99999999999999999999999"),
			want:   outcome{refuse, names{}},
		},
		"version damaged": {
			reason: "no program writes that; the rest is whole",
			secret: with(a, stateobject.VersionKey, "nonsense"),
			want:   outcome{update, names{Active: "a"}},
		},
		"all damaged, the version too": {
			reason: "memory has it all",
			secret: &corev1.Secret{Data: map[string][]byte{stateobject.VersionKey: []byte("x"), keyActiveCert: []byte("x"), keyActiveKey: []byte("x")}},
			held:   held(names{Active: "a", Previous: "b"}),
			want:   outcome{update, names{Active: "a", Previous: "b"}},
		},
		"replaced by hand": {
			reason: "leaves in use are of a CA that somebody has put another in place of",
			secret: c.secret(t, names{Active: "b"}),
			held:   held(names{Active: "b"}),
			inUse:  "a",
			want:   outcome{update, names{Active: "b", Previous: "a"}},
		},
		"replaced, and ours expired": {
			reason: "nobody accepts leaves of an expired CA",
			secret: c.secret(t, names{Active: "b"}),
			inUse:  "older",
			want:   outcome{keep, names{Active: "b"}},
		},
		"one day before two thirds": {
			reason: "too early for a rollover",
			secret: a,
			day:    242,
			want:   outcome{keep, names{Active: "a"}},
		},
		"two thirds": {
			reason: "a rollover begins, nothing else changes",
			secret: a,
			day:    244,
			known:  true,
			want:   outcome{update, names{Active: "a", Next: "fresh"}},
		},
		"announced": {
			reason: "callers may not have it yet",
			secret: c.secret(t, names{Active: "a", Next: "late"}),
			day:    361,
			want:   outcome{keep, names{Active: "a", Next: "late"}},
		},
		"announced and known": {
			reason: "the next one signs, the previous one stays in the caBundle",
			secret: c.secret(t, names{Active: "a", Next: "b", Previous: "old"}),
			known:  true,
			want:   outcome{update, names{Active: "b", Previous: "a"}},
		},
		"announced and never known": {
			reason: "at last a CA is better than none",
			secret: c.secret(t, names{Active: "a", Next: "late"}),
			day:    363,
			want:   outcome{update, names{Active: "late", Previous: "a"}},
		},
		"active expired": {
			reason: "there is no overlap to keep",
			secret: c.secret(t, names{Active: "a"}),
			held:   held(names{Active: "a"}),
			inUse:  "a",
			day:    365,
			want:   outcome{update, names{Active: "fresh"}},
		},
		"active expired during a rollover": {
			reason: "the announced one is in the caBundle",
			secret: c.secret(t, names{Active: "a", Next: "late"}),
			day:    365,
			want:   outcome{update, names{Active: "late"}},
		},
		"previous expired": {
			reason: "the caBundle does not grow old",
			secret: c.secret(t, names{Active: "a", Previous: "old"}),
			day:    2,
			want:   outcome{update, names{Active: "a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fresh := c["fresh"]
			if strings.HasPrefix(name, "active expired") || tc.day == 244 {
				fresh = newCast(t, map[string]int{"fresh": tc.day})["fresh"]
			}
			cast := maps.Clone(c)
			cast["fresh"] = fresh
			got, err := plan(observation{
				secret: tc.secret,
				held:   tc.held,
				inUse:  c.cert(tc.inUse),
				now:    start.Add(time.Duration(tc.day) * day),
				known:  func(*x509.Certificate) bool { return tc.known },
				fresh:  func() (*authority, error) { return fresh, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, outcome{got.action, cast.names(got.wanted)}); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", tc.reason, diff)
			}
			if (got.reason == "") != (got.action == keep) {
				t.Errorf("action %d for the reason %q", got.action, got.reason)
			}
		})
	}
}

// What is planned, once written, leads to no further plan.
func TestPlanSettles(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"a": 0, "b": 0, "fresh": 0})
	never := func(*x509.Certificate) bool { return false }
	fresh := func() (*authority, error) { return c["fresh"], nil }
	for name, first := range map[string]observation{
		"none":     {},
		"deleted":  {held: c.state(names{Active: "a"})},
		"emptied":  {secret: emptySecret("", ""), held: c.state(names{Active: "a", Next: "b"})},
		"replaced": {secret: c.secret(t, names{Active: "b"}), inUse: c.cert("a")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first.now, first.known, first.fresh = start.Add(time.Hour), never, fresh
			decided, err := plan(first)
			if err != nil || decided.action == keep {
				t.Fatalf("plan = %+v, %v; want something to do", decided.action, err)
			}
			second := first
			if second.secret, err = decided.wanted.writeInto(emptySecret("", "")); err != nil {
				t.Fatal(err)
			}
			if again, err := plan(second); err != nil || again.action != keep {
				t.Errorf("the second plan = %v because %s, %v; want nothing to do", again.action, again.reason, err)
			}
		})
	}
}

func TestPlanNeedsKeys(t *testing.T) {
	t.Parallel()
	errBoom := errors.New("boom")
	_, err := plan(observation{now: start, fresh: func() (*authority, error) { return nil, errBoom }})
	if !errors.Is(err, errBoom) {
		t.Errorf("plan = %v, want %v", err, errBoom)
	}
}

// Reasons go to logs and Events.
func TestPlanQuotesNoKey(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"a": 0, "fresh": 0})
	key := string(c.secret(t, names{Active: "a"}).Data[keyActiveKey])
	body := strings.Split(key, "\n")[1]
	for name, content := range map[string]string{
		"half a key":       key[:len(key)/2],
		"key as cert":      key,
		"key without mark": body,
	} {
		for _, place := range []string{keyActiveCert, keyActiveKey, keyNextCert, keyNextKey, keyPreviousCert} {
			if place == keyActiveKey && content == key {
				continue // where it belongs
			}
			secret := with(c.secret(t, names{Active: "a"}), place, content)
			decided, err := plan(observation{
				secret: secret, now: start, known: func(*x509.Certificate) bool { return false },
				fresh: func() (*authority, error) { return c["fresh"], nil },
			})
			if err != nil || decided.reason == "" {
				t.Fatalf("%s in %s: plan = %q, %v; want a reason", name, place, decided.reason, err)
			}
			if strings.Contains(decided.reason, body[:16]) {
				t.Errorf("%s in %s: the reason quotes it: %s", name, place, decided.reason)
			}
		}
	}
}
