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

// after has time pass, and reports whether p is served then.
func (r *rotating) after(d time.Duration, p pair) bool {
	r.clock.Step(d)
	r.step()
	return bytes.HasPrefix(p.cert, certPEM(r.current.Load().serving.Leaf))
}

// has is which CAs of a cast the caBundle has.
func (r *rotating) has(c cast) string {
	var names []string
	for name, one := range c {
		if bytes.Contains(r.CABundle(), certPEM(one.cert)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// A leaf of another CA is served once every caBundle has had that CA for a while.
func TestFilesWaitForTheCABundle(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"old": 0, "new": 0, "newest": 0})
	now := start.Add(day)
	first, second := newPair(t, c["old"], now, "127.0.0.1").with(c["old"]), newPair(t, c["new"], now, "127.0.0.1").with(c["new"])
	oldCA, newCA := certPEM(c["old"].cert), certPEM(c["new"].cert)
	both := slices.Concat(oldCA, newCA)
	const wait = propagation

	t.Run("Leads", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.Registered([][]byte{oldCA, oldCA}, false)
		r.replaceFiles(second)
		if got := r.has(c); got != "new,old" {
			t.Errorf("the caBundle has %s, want both CAs before a leaf of the new one is served", got)
		}
		if r.after(time.Hour, second) {
			t.Error("a leaf is served that no caller accepts")
		}
		r.Registered([][]byte{both, oldCA}, false)
		if r.after(time.Hour, second) {
			t.Error("a leaf is served that the callers of one webhook do not accept")
		}
		r.Registered([][]byte{both, both}, false)
		if r.after(wait-time.Second, second) {
			t.Error("a leaf is served that not every kube-apiserver knows to accept")
		}
		if !r.after(time.Second, second) {
			t.Error("the previous leaf is still served, though callers accept the new one")
		}
		if r.after(filesOverlap-time.Second, second); r.has(c) != "new,old" {
			t.Error("the previous CA is gone, and another replica may still serve with a leaf of it")
		}
		if r.after(time.Second, second); r.has(c) != "new" {
			t.Errorf("the caBundle has %s in the end, want the new CA alone", r.has(c))
		}
	})
	t.Run("ChangedTwice", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.Registered([][]byte{oldCA, oldCA}, false)
		r.replaceFiles(second)
		r.replaceFiles(newPair(t, c["newest"], now, "127.0.0.1").with(c["newest"]))
		if got := r.has(c); got != "new,newest,old" {
			t.Errorf("the caBundle has %s, want also the CA in between: another replica may serve with a leaf of it", got)
		}
		if r.after(filesOverlap, second); r.has(c) != "newest,old" {
			t.Errorf("the caBundle has %s after the overlap, want the CAs of the served and of the newest files", r.has(c))
		}
	})
	t.Run("NothingRegistered", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.Registered(nil, false)
		r.replaceFiles(second)
		if !r.after(wait, second) {
			t.Error("no call can fail, and the previous leaf is still served")
		}
	})
	t.Run("Expired", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.Registered([][]byte{oldCA}, false)
		r.clock.Step(30*day - time.Hour)
		late := newPair(t, c["new"], r.clock.Now(), "127.0.0.1").with(c["new"])
		if r.replaceFiles(late); r.after(0, late) {
			t.Error("a leaf is served that no caller accepts")
		}
		if !r.after(time.Hour+time.Second, late) || r.Ready() != nil {
			t.Errorf("an expired leaf is served though there is a new one: %v", r.Ready())
		}
	})
	t.Run("SameCA", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.Registered([][]byte{oldCA}, false)
		renewed := newPair(t, c["old"], now.Add(time.Minute), "127.0.0.1").with(c["old"])
		r.clock.Step(time.Hour)
		if r.replaceFiles(renewed); !r.after(0, renewed) {
			t.Error("a leaf of the CA that callers have waits")
		}
	})
	t.Run("Unregistered", func(t *testing.T) {
		t.Parallel()
		r := newRotating(t, first, now)
		r.config.NeedsCA = false
		if r.replaceFiles(second); !r.after(0, second) || r.has(c) != "new" {
			t.Error("a leaf waits for caBundles that are not registered")
		}
	})
}

// A replica with the previous files that begins to lead keeps the CA that the leader before it
// has registered, whose leaves others serve.
func TestFilesKeepWhatIsInherited(t *testing.T) {
	t.Parallel()
	c := newCast(t, map[string]int{"old": 0, "new": 0, "rogue": 0})
	now := start.Add(day)
	r := newRotating(t, newPair(t, c["old"], now, "127.0.0.1").with(c["old"]), now)
	both := slices.Concat(certPEM(c["new"].cert), certPEM(c["old"].cert))
	r.Registered([][]byte{both, both}, true)
	if r.step(); r.has(c) != "new,old" {
		t.Errorf("the caBundle has %s, want what is registered too", r.has(c))
	}
	r.Registered([][]byte{slices.Concat(both, certPEM(c["rogue"].cert))}, false)
	if r.step(); r.has(c) != "new,old" {
		t.Errorf("the caBundle has %s: what comes under this leader is not inherited", r.has(c))
	}
	r.clock.Step(filesOverlap)
	if r.step(); r.has(c) != "old" {
		t.Errorf("the caBundle has %s after the overlap, want the CA of the files alone", r.has(c))
	}
}
