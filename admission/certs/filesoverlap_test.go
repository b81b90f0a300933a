// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/testutil"
)

// rotating is Files whose content a test changes, step by step.
type rotating struct {
	*Files
	t     *testing.T
	dir   string
	clock *clocktesting.FakeClock
}

func newRotating(t *testing.T, first pair, now time.Time) *rotating {
	t.Helper()
	r := &rotating{t: t, dir: t.TempDir(), clock: clocktesting.NewFakeClock(now)}
	config := FilesConfig{
		CertFile: writeFile(t, r.dir, "tls.crt", first.cert), KeyFile: writeFile(t, r.dir, "tls.key", first.key),
		NeedsCA: true, Clock: r.clock,
	}
	var err error
	if r.Files, err = NewFiles(config); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rotating) replaceFiles(p pair) {
	r.t.Helper()
	writeFile(r.t, r.dir, "tls.crt", p.cert)
	writeFile(r.t, r.dir, "tls.key", p.key)
	testutil.Must(r.t, r.pair.RunOnce(r.t.Context()))
	testutil.Must(r.t, r.load())
	r.step()
}

// has is which CAs of a cast the caBundle has.
func (r *rotating) has(c cast) string {
	var names []string
	for name, one := range c {
		if bytes.Contains(r.CABundle(), pki.CertPEM(one.cert)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// A leaf of another CA is served once every caBundle has had that CA for a while.
func TestFilesWaitForTheCABundle(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"old": 0, "new": 0, "newest": 0, "rogue": 0})
	now := start.Add(day)
	files := map[string]pair{"renewed": newPair(t, c["old"], now.Add(time.Minute), "127.0.0.1").with(c["old"])}
	for name, ca := range c {
		files[name] = newPair(t, ca, now, "127.0.0.1").with(ca)
	}
	files["late"] = newPair(t, c["new"], now.Add(30*day-time.Hour), "127.0.0.1").with(c["new"])
	// registers has each webhook registered with some CAs.
	registers := func(inherited bool, caBundles ...string) func(*rotating) {
		return func(r *rotating) {
			var all [][]byte
			for _, names := range caBundles {
				var bundle []byte
				for name := range strings.SplitSeq(names, ",") {
					bundle = append(bundle, pki.CertPEM(c[name].cert)...)
				}
				all = append(all, bundle)
			}
			r.Registered(all, inherited)
		}
	}
	replaced := func(by ...string) func(*rotating) {
		return func(r *rotating) {
			for _, name := range by {
				r.replaceFiles(files[name])
			}
		}
	}
	type step struct {
		do          func(*rotating)
		after       time.Duration
		serves, has string // which files, and the caBundle which CAs
	}
	for name, tc := range map[string]struct {
		reason       string
		unregistered bool
		steps        []step
	}{
		"Leads": {reason: "neither a caller nor another replica meets a leaf that is not accepted", steps: []step{
			{do: registers(false, "old", "old"), serves: "old", has: "old"},
			{do: replaced("new"), after: time.Hour, serves: "old", has: "new,old"},
			{do: registers(false, "new,old", "old"), after: time.Hour, serves: "old", has: "new,old"},
			{do: registers(false, "new,old", "new,old"), after: propagation - time.Second, serves: "old", has: "new,old"},
			{after: time.Second, serves: "new", has: "new,old"},
			{after: filesOverlap - time.Second, serves: "new", has: "new,old"},
			{after: time.Second, serves: "new", has: "new"},
		}},
		"ChangedTwice": {reason: "another replica may serve with a leaf of the CA in between", steps: []step{
			{do: registers(false, "old", "old"), serves: "old", has: "old"},
			{do: replaced("new", "newest"), serves: "old", has: "new,newest,old"},
			{after: filesOverlap, serves: "old", has: "newest,old"},
		}},
		"NothingRegistered": {reason: "no call can fail", steps: []step{
			{do: registers(false), serves: "old", has: "old"},
			{do: replaced("new"), after: propagation, serves: "new", has: "new,old"},
		}},
		"Expired": {reason: "a new leaf is better than an expired one", steps: []step{
			{do: registers(false, "old"), after: 30*day - time.Hour, serves: "old", has: "old"},
			{do: replaced("late"), serves: "old", has: "new,old"},
			{after: time.Hour + time.Second, serves: "late", has: "new,old"},
		}},
		"SameCA": {reason: "callers have it", steps: []step{
			{do: registers(false, "old"), after: time.Hour, serves: "old", has: "old"},
			{do: replaced("renewed"), serves: "renewed", has: "old"},
		}},
		"Unregistered": {reason: "no caBundle is to wait for", unregistered: true, steps: []step{
			{do: replaced("new"), serves: "new", has: "new"},
		}},
		"Inherited": {reason: "others serve with leaves of the CA that an earlier leader has registered", steps: []step{
			{do: registers(true, "new,old", "new,old"), serves: "old", has: "new,old"},
			{do: registers(false, "new,old,rogue"), serves: "old", has: "new,old"},
			{after: filesOverlap, serves: "old", has: "old"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRotating(t, files["old"], now)
			r.config.NeedsCA = !tc.unregistered
			for i, one := range tc.steps {
				if one.do != nil {
					one.do(r)
				}
				r.clock.Step(one.after)
				r.step()
				if served := pki.CertPEM(r.current.Load().serving.Leaf); !bytes.HasPrefix(files[one.serves].cert, served) || r.has(c) != one.has {
					t.Errorf("%s: step %d: the caBundle has %s, want %s; is the leaf of the %s files: %t", tc.reason, i, r.has(c), one.has,
						one.serves, bytes.HasPrefix(files[one.serves].cert, served))
				}
				if err := r.Ready(); err != nil {
					t.Errorf("%s: step %d: %v", tc.reason, i, err)
				}
			}
		})
	}
}
