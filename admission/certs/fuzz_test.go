// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/internal/testutil"
)

// FuzzPlan lets somebody write anything into the Secret of the serving CA. What is planned has a CA
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
	other := c.secret(f, "b").Data // somebody has put another one in place
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
			if strings.Contains(decided.reason, line) {
				t.Errorf("the reason quotes a key: %s", decided.reason)
			}
		}
		for name, was := range before.Data {
			if !bytes.Equal(was, secret.Data[name]) {
				t.Errorf("what was given is changed: %s", name)
			}
		}
		if err != nil {
			testutil.CheckError(t, "plan", "this program knows", err)
			return
		}
		if decided.wanted.active == nil || !o.now.Before(decided.wanted.active.cert.NotAfter) {
			t.Fatalf("nobody signs, because %q", decided.reason)
		}
		for range 3 { // a CA that has just become the active one may have to be replaced itself
			if decided.reason == "" {
				return
			}
			o.secret, err = decided.wanted.writeInto(secret)
			testutil.Must(t, err)
			decided = testutil.Get(plan(o))(t)
		}
		t.Errorf("it is planned again and again: %q", decided.reason)
	})
}
