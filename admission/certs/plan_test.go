// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/pki"
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
	return testutil.Get(newAuthority(now, lifetime))(t)
}

func (c cast) cert(name string) *x509.Certificate {
	if name == "" {
		return nil
	}
	return c[name].cert
}

func (c cast) name(certificate *x509.Certificate) string {
	for name, one := range c {
		if one.cert.Equal(certificate) {
			return name
		}
	}
	return "another"
}

// state reads "active>next<previous": the names of CAs, of which all but the first may be missing.
func (c cast) state(text string) *state {
	text, previous, _ := strings.Cut(text, "<")
	active, next, announced := strings.Cut(text, ">")
	s := &state{active: c[active], previous: c.cert(previous)}
	if announced {
		s.next = c[next]
	}
	return s
}

// text is the reverse of state.
func (c cast) text(s state) string {
	var text string
	if s.active != nil {
		text = c.name(s.active.cert)
	}
	if s.next != nil {
		text += ">" + c.name(s.next.cert)
	}
	if s.previous != nil {
		text += "<" + c.name(s.previous)
	}
	return text
}

func (c cast) secret(t testing.TB, text string) *corev1.Secret {
	t.Helper()
	return secretWith(t, *c.state(text))
}

func secretWith(t testing.TB, s state) *corev1.Secret {
	t.Helper()
	return testutil.Get(s.writeInto(emptySecret()))(t)
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
	leaf := testutil.Get(c["a"].leaf(start, day, []string{"localhost"}))(t)
	keyOfB := string(c.secret(t, "b").Data[keyActiveKey])
	for name, tc := range map[string]struct {
		reason     string
		secret     string // there is none if empty
		key, value string // put into it
		held       string
		day        int
		known      bool
		want       string // the action and the state
	}{
		"no Secret":           {reason: "the replica that starts first makes the CA", want: "write fresh"},
		"whole":               {reason: "what is right is not written", secret: "a", held: "a", want: "keep a"},
		"deleted":             {reason: "leaves in use stay valid and a successor is announced", held: "a<b", want: "write a>fresh<b"},
		"deleted while known": {reason: "what nobody can read in the API is not promoted", held: "a>b", known: true, want: "write a>b"},
		"deleted and expired": {
			reason: "an expired CA does not come back; its announced successor takes over", held: "older", want: "write fresh",
		},
		"emptied": {reason: "all damage is repaired from memory", secret: "empty", held: "a>b<old", want: "write a>b<old"},
		"key lost before we came": {
			reason: "replicas that hold the CA put it back, or keep it in the caBundle",
			secret: "a", key: keyActiveKey, value: "rubbish", want: "write fresh",
		},
		"key of another CA": {
			reason: "a pair that does not match is damage", secret: "a", key: keyActiveKey, value: keyOfB, held: "a", want: "write a",
		},
		"leaf in the place of the previous CA": {
			reason: "callers must not trust what is no CA",
			secret: "a<b", key: keyPreviousCert, value: string(pki.CertPEM(leaf.Leaf)), want: "write a",
		},
		"key lost during a rollover": {
			reason: "the announced CA is in the caBundle already", secret: "a>b", key: keyActiveKey, want: "write b",
		},
		"announced CA damaged": {
			reason: "memory has it", secret: "a>b", key: keyNextCert, value: "rubbish", held: "a>b", want: "write a>b",
		},
		"version missing": {reason: "the Secret was rebuilt by hand", secret: "a", key: stateobject.VersionKey, want: "write a"},
		"version of the future": {
			reason: "an older program must not destroy what a newer one wrote",
			secret: "a", key: stateobject.VersionKey, value: "2", held: "a", want: "refuse ",
		},
		"replaced by hand":          {reason: "it is used as it is", secret: "b", held: "a", want: "keep b"},
		"one day before two thirds": {reason: "too early for a rollover", secret: "a", day: 242, want: "keep a"},
		"two thirds": {
			reason: "a rollover begins, nothing else changes", secret: "a", day: 244, known: true, want: "write a>fresh",
		},
		"announced": {reason: "callers may not have it yet", secret: "a>late", day: 361, want: "keep a>late"},
		"announced and known": {
			reason: "the next one signs, the previous one stays in the caBundle", secret: "a>b<old", known: true, want: "write b<a",
		},
		"announced and never known": {reason: "at last a CA is better than none", secret: "a>late", day: 363, want: "write late<a"},
		"active expired":            {reason: "there is no overlap to keep", secret: "a", held: "a", day: 365, want: "write fresh"},
		"active expired during a rollover": {
			reason: "the announced one is in the caBundle", secret: "a>late", day: 365, want: "write late",
		},
		"previous expired": {reason: "the caBundle does not grow old", secret: "a<old", day: 2, want: "write a"},
	} {
		t.Run(name, func(t *testing.T) {
			now, cast := start.Add(time.Duration(tc.day)*day), maps.Clone(c)
			cast["fresh"] = madeAt(t, now, 365*day)
			o := observation{
				now:   now,
				known: func(*x509.Certificate) bool { return tc.known },
				fresh: func() (*authority, error) { return cast["fresh"], nil },
			}
			switch tc.secret {
			case "":
			case "empty":
				o.secret = emptySecret()
			default:
				o.secret = c.secret(t, tc.secret)
			}
			if tc.key != "" {
				o.secret.Data[tc.key] = []byte(tc.value)
			}
			if tc.held != "" {
				o.held = c.state(tc.held)
			}
			got, err := plan(o)
			action := "keep"
			if got.reason != "" {
				action = "write"
			}
			if err != nil {
				action = "refuse"
				testutil.CheckError(t, "plan", `its schema-version is "2"`, err)
			}
			testutil.Check(t, tc.reason, tc.want, action+" "+cast.text(got.wanted))
		})
	}
}

func TestRegistered(t *testing.T) {
	t.Parallel()
	cast := newCast(t, map[string]int{"a": 0, "b": 0})
	a, b := pki.CertPEM(cast["a"].cert), pki.CertPEM(cast["b"].cert)
	both := slices.Concat(a, b)
	for name, tc := range map[string]struct {
		reason  string
		minutes [][][]byte // what is registered, minute by minute
		want    bool       // whether leaves of b are verified when the last one begins
	}{
		"Unknown":   {reason: "nothing was registered"},
		"Nothing":   {reason: "callers have it once it is registered", minutes: [][][]byte{{}, {}}},
		"Everybody": {reason: "for a minute", minutes: [][][]byte{{a, a}, {both, both}, {both, both}}, want: true},
		"JustNow":   {reason: "callers may not have it yet", minutes: [][][]byte{{a, a}, {both, both}}},
		"NotAll":    {reason: "one webhook lacks it", minutes: [][][]byte{{both, a}, {both, a}}},
		"Gone":      {reason: "it is no longer there", minutes: [][][]byte{{both}, {both}, {a}}},
		"Again":     {reason: "it may be unknown to callers meanwhile", minutes: [][][]byte{{both}, {a}, {both}}},
		"Damaged":   {reason: "callers refuse all of it", minutes: [][][]byte{{b, []byte("rubbish")}, {b, []byte("rubbish")}}},
	} {
		t.Run(name, func(t *testing.T) {
			r, now := &registered{}, start.Add(day)
			leaf := testutil.Get(cast["b"].leaf(now, day, []string{"localhost"}))(t)
			for _, caBundles := range tc.minutes {
				now = now.Add(time.Minute)
				r.observe(caBundles, false, now)
			}
			testutil.Check(t, tc.reason, tc.want, r.verify(leaf.Leaf, nil, now))
			testutil.Check(t, tc.reason+", the CA itself", tc.want, r.verify(cast["b"].cert, nil, now))
		})
	}
}

// FuzzPlan lets another client write anything into the Secret of the serving CA. What is planned has a CA
// that signs, drops no CA whose leaves are in use, quotes no key, and is settled once it is
// written.
func FuzzPlan(f *testing.F) {
	c := newCast(f, map[string]int{"a": 0, "b": 1, "c": 2, "fresh": 3})
	whole := c.secret(f, "a>b<c").Data
	seed := func(version, cert, key, nextCert, nextKey, previous []byte) {
		f.Add(version, cert, key, nextCert, nextKey, previous, 0)
		f.Add(version, cert, key, nextCert, nextKey, previous, 300)
	}
	one := []byte("1")
	seed(one, whole[keyActiveCert], whole[keyActiveKey], whole[keyNextCert], whole[keyNextKey], whole[keyPreviousCert])
	seed(one, whole[keyNextCert], whole[keyActiveKey], whole[keyActiveKey], whole[keyNextCert], whole[keyActiveKey])
	other := c.secret(f, "b").Data // another client has put it there
	seed(one, other[keyActiveCert], other[keyActiveKey], nil, nil, nil)
	seed(one, nil, nil, whole[keyNextCert], whole[keyNextKey], nil)
	seed([]byte("2"), whole[keyActiveCert], nil, nil, nil, nil)
	// A key in the place of something else, whole, cut and without its marks.
	for _, misplaced := range [][]byte{whole[keyActiveKey], whole[keyActiveKey][:len(whole[keyActiveKey])/2],
		bytes.Split(whole[keyActiveKey], []byte("\n"))[1]} {
		seed(one, misplaced, misplaced, misplaced, misplaced, misplaced)
		seed(one, whole[keyActiveCert], whole[keyActiveKey], misplaced, misplaced, misplaced)
	}
	seed([]byte("x"), whole[keyActiveCert][:99], whole[keyActiveKey][:99], nil, []byte("-----"), []byte{0})
	lines := map[string]bool{}
	for _, key := range [][]byte{whole[keyActiveKey], whole[keyNextKey]} {
		for line := range strings.Lines(string(key)) {
			if !strings.HasPrefix(line, "-----") {
				lines[strings.TrimSpace(line)[:16]] = true
			}
		}
	}
	f.Fuzz(func(t *testing.T, version, cert, key, nextCert, nextKey, previous []byte, days int) {
		secret := emptySecret()
		secret.Data = map[string][]byte{
			stateobject.VersionKey: version, keyActiveCert: cert, keyActiveKey: key, keyNextCert: nextCert, keyNextKey: nextKey,
			keyPreviousCert: previous,
		}
		o := observation{
			secret: secret, held: c.state("a"), now: start.Add(time.Duration(days%400) * day),
			known: func(*x509.Certificate) bool { return false },
			// Whatever the time, one that is made now lives.
			fresh: func() (*authority, error) { return newAuthority(start.Add(time.Duration(days%400)*day), 365*day) },
		}
		before := secret.DeepCopy()
		decided, err := plan(o)
		for line := range lines {
			testutil.Expect(t, !strings.Contains(decided.reason, line), "the reason quotes a key: %s", decided.reason)
		}
		for name, was := range before.Data {
			testutil.Expect(t, bytes.Equal(was, secret.Data[name]), "what was given is changed: %s", name)
		}
		if err != nil {
			testutil.CheckError(t, "plan", "this program knows", err)
			return
		}
		testutil.Require(t, decided.wanted.active != nil && o.now.Before(decided.wanted.active.cert.NotAfter), "nobody signs, because %q",
			decided.reason)
		for range 3 { // a CA that has just become the active one may have to be replaced itself
			if decided.reason == "" {
				return
			}
			o.secret = testutil.Get(decided.wanted.writeInto(secret))(t)
			decided = testutil.Get(plan(o))(t)
		}
		t.Errorf("it is planned again and again: %q", decided.reason)
	})
}
