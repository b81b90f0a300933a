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

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/internal/testutil"
)

const day = 24 * time.Hour

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// cast are the CAs of the table, each born some days after start and living a year.
type cast map[string]*authority

func newCast(t testing.TB, born map[string]int) cast {
	t.Helper()
	c := cast{}
	for name, days := range born {
		c[name] = madeAt(t, start.Add(time.Duration(days)*day), 365*day)
	}
	return c
}

func madeAt(t testing.TB, now time.Time, lifetime time.Duration) *authority {
	t.Helper()
	made, err := newAuthority(now, lifetime)
	testutil.Must(t, err)
	return made
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
	return secretWith(t, *c.state(n))
}

func secretWith(t testing.TB, s state) *corev1.Secret {
	t.Helper()
	secret, err := s.writeInto(emptySecret())
	testutil.Must(t, err)
	return secret
}

func with(secret *corev1.Secret, key, value string) *corev1.Secret {
	secret = secret.DeepCopy()
	secret.Data[key] = []byte(value)
	return secret
}

func TestPlan(t *testing.T) {
	t.Parallel()
	// "old" is a year older than "a" and "b", "late" is made when those near their end.
	c := newCast(t, map[string]int{"a": 0, "b": 0, "old": -364, "older": -400, "late": 360, "fresh": 0})
	a := c.secret(t, names{Active: "a"})
	held := func(n names) *state { return c.state(n) }
	leaf, err := c["a"].leaf(start, day, []string{"localhost"})
	testutil.Must(t, err)
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
			want:   outcome{write, names{Active: "fresh"}},
		},
		"whole": {
			reason: "what is right is not written",
			secret: a,
			want:   outcome{keep, names{Active: "a"}},
		},
		"deleted": {
			reason: "leaves in use stay valid and a successor is announced",
			held:   held(names{Active: "a", Previous: "b"}),
			want:   outcome{write, names{Active: "a", Next: "fresh", Previous: "b"}},
		},
		"deleted while known": {
			reason: "what nobody can read in the API is not promoted",
			held:   held(names{Active: "a", Next: "b"}),
			known:  true,
			want:   outcome{write, names{Active: "a", Next: "b"}},
		},
		"deleted and expired": {
			reason: "an expired CA comes back for nobody; its announced successor takes over",
			held:   held(names{Active: "older"}),
			want:   outcome{write, names{Active: "fresh"}},
		},
		"emptied": {
			reason: "all damage is repaired from memory",
			secret: emptySecret(),
			held:   held(names{Active: "a", Next: "b", Previous: "old"}),
			want:   outcome{write, names{Active: "a", Next: "b", Previous: "old"}},
		},
		"key lost before we came": {
			reason: "replicas that hold the CA put it back, or keep it in the caBundle",
			secret: with(a, keyActiveKey, "rubbish"),
			want:   outcome{write, names{Active: "fresh"}},
		},
		"key of another CA": {
			reason: "a pair that does not match is damage",
			secret: with(a, keyActiveKey, string(c.secret(t, names{Active: "b"}).Data[keyActiveKey])),
			held:   held(names{Active: "a"}),
			want:   outcome{write, names{Active: "a"}},
		},
		"leaf in the place of the previous CA": {
			reason: "callers must not trust what is no CA",
			secret: with(c.secret(t, names{Active: "a", Previous: "b"}), keyPreviousCert, string(certPEM(leaf.Leaf))),
			want:   outcome{write, names{Active: "a"}},
		},
		"key lost during a rollover": {
			reason: "the announced CA is in the caBundle already",
			secret: with(c.secret(t, names{Active: "a", Next: "b"}), keyActiveKey, ""),
			want:   outcome{write, names{Active: "b"}},
		},
		"announced CA damaged": {
			reason: "memory has it",
			secret: with(c.secret(t, names{Active: "a", Next: "b"}), keyNextCert, "rubbish"),
			held:   held(names{Active: "a", Next: "b"}),
			want:   outcome{write, names{Active: "a", Next: "b"}},
		},
		"version missing": {
			reason: "somebody rebuilt the Secret by hand",
			secret: with(a, stateobject.VersionKey, ""),
			want:   outcome{write, names{Active: "a"}},
		},
		"version of the future": {
			reason: "an older program must not destroy what a newer one wrote",
			secret: with(a, stateobject.VersionKey, "2"),
			held:   held(names{Active: "a"}),
			want:   outcome{refuse, names{}},
		},
		"replaced by hand": {
			reason: "leaves in use are of a CA that somebody has put another in place of",
			secret: c.secret(t, names{Active: "b"}),
			held:   held(names{Active: "b"}),
			inUse:  "a",
			want:   outcome{write, names{Active: "b", Previous: "a"}},
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
			want:   outcome{write, names{Active: "a", Next: "fresh"}},
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
			want:   outcome{write, names{Active: "b", Previous: "a"}},
		},
		"announced and never known": {
			reason: "at last a CA is better than none",
			secret: c.secret(t, names{Active: "a", Next: "late"}),
			day:    363,
			want:   outcome{write, names{Active: "late", Previous: "a"}},
		},
		"active expired": {
			reason: "there is no overlap to keep",
			secret: c.secret(t, names{Active: "a"}),
			held:   held(names{Active: "a"}),
			inUse:  "a",
			day:    365,
			want:   outcome{write, names{Active: "fresh"}},
		},
		"active expired during a rollover": {
			reason: "the announced one is in the caBundle",
			secret: c.secret(t, names{Active: "a", Next: "late"}),
			day:    365,
			want:   outcome{write, names{Active: "late"}},
		},
		"previous expired": {
			reason: "the caBundle does not grow old",
			secret: c.secret(t, names{Active: "a", Previous: "old"}),
			day:    2,
			want:   outcome{write, names{Active: "a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
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
			testutil.Must(t, err)
			testutil.Check(t, tc.reason, tc.want, outcome{got.action, cast.names(got.wanted)})
			if (got.reason == "") != (got.action == keep) {
				t.Errorf("action %d for the reason %q", got.action, got.reason)
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
