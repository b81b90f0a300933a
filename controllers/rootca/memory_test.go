// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"fmt"
	"testing"
	"time"

	"sa-controller-manager/controllers/informers"
)

func TestRepairDelay(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{
		1: 0, freeRepairs: 0, freeRepairs + 1: time.Second, freeRepairs + 2: 2 * time.Second, freeRepairs + 8: 128 * time.Second,
		freeRepairs + 9: 256 * time.Second, freeRepairs + 10: maxRepairDelay, 1 << 30: maxRepairDelay,
	} {
		check(t, fmt.Sprint("delay of repair ", n), want, repairDelay(n))
	}
}

// opponent undoes what a memory remembers, on a clock of its own.
type opponent struct {
	memory
	*testing.T

	now            time.Time
	version        int
	bundle, edited *Bundle
}

func newOpponent(t *testing.T) *opponent {
	t.Helper()
	a := newAuthorities(t, "AB")
	o := &opponent{T: t, now: time.Unix(1e9, 0), bundle: a.bundle(t, "A"), edited: a.bundle(t, "B")}
	o.examine("shop", none, o.seen(o.bundle), o.now)
	return o
}

// seen is a new version of the ConfigMap.
func (o *opponent) seen(bundle *Bundle) *informers.RootCA {
	o.version++
	found := informers.ObserveRootCA(right("shop", bundle))
	found.ResourceVersion = fmt.Sprint(o.version)
	return found
}

// edits and what follows: how long the repair waits, until it is made and seen.
func (o *opponent) fight() time.Duration {
	o.Helper()
	found := o.seen(o.edited)
	got := o.examine("shop", update, found, o.now)
	if got.contested != (got.wait > 0) {
		o.Errorf("contested is %v with a wait of %v", got.contested, got.wait)
	}
	o.now = o.now.Add(got.wait)
	if rest := o.examine("shop", update, found, o.now); rest.wait > 0 {
		o.Errorf("%v later it waits for %v more", got.wait, rest.wait)
	}
	o.wrote("shop", found, o.bundle, o.now)
	o.examine("shop", none, o.seen(o.bundle), o.now)
	return got.wait
}

func TestAFightSlowsDownAndIsForgotten(t *testing.T) {
	t.Parallel()
	o := newOpponent(t)
	var waits []time.Duration
	for range freeRepairs + 3 {
		waits = append(waits, o.fight())
	}
	check(t, "waits", []time.Duration{0, 0, 0, time.Second, 2 * time.Second, 4 * time.Second}, waits)
	o.now = o.now.Add(peace - time.Second)
	check(t, "wait before there was peace for long enough", 8*time.Second, o.fight())
	o.now = o.now.Add(peace)
	check(t, "wait after that", time.Duration(0), o.fight())
}

func TestWhoEditsAllTheTimeDoesNotPutTheRepairOffForEver(t *testing.T) {
	t.Parallel()
	o := newOpponent(t)
	for range freeRepairs + 20 {
		o.fight()
	}
	begun := o.now
	for o.examine("shop", update, o.seen(o.edited), o.now).wait > 0 {
		if o.now = o.now.Add(time.Second); o.now.Sub(begun) > maxRepairDelay {
			t.Fatalf("not repaired after %v", maxRepairDelay)
		}
	}
	check(t, "time until the repair", maxRepairDelay, o.now.Sub(begun))
}

func TestWhatIsNoFight(t *testing.T) {
	t.Parallel()
	o := newOpponent(t)
	bundles := []*Bundle{o.edited, o.bundle}
	for i := range 20 { // the root CA changes, and changes back
		found := o.seen(bundles[(i+1)%2])
		o.examine("shop", none, found, o.now)
		check(t, "wait for a new bundle", pause{}, o.examine("shop", update, found, o.now))
		o.wrote("shop", found, bundles[i%2], o.now)
	}
	for i := range 20 { // namespaces that this process sees for the first time
		check(t, "wait for a namespace", pause{}, o.examine(fmt.Sprint(i), update, o.seen(o.edited), o.now))
	}
	for range 20 { // a namespace that is made again and again
		check(t, "wait for a new namespace", pause{}, o.examine("again", create, nil, o.now))
		o.wrote("again", nil, o.bundle, o.now)
		o.examine("again", none, o.seen(o.bundle), o.now)
		o.forget("again")
	}
}

func TestDeletionsAreAFightToo(t *testing.T) {
	t.Parallel()
	o := newOpponent(t)
	var waits []time.Duration
	for range freeRepairs + 2 {
		got := o.examine("shop", create, nil, o.now)
		waits = append(waits, got.wait)
		o.now = o.now.Add(got.wait)
		o.wrote("shop", nil, o.bundle, o.now)
		o.examine("shop", none, o.seen(o.bundle), o.now)
	}
	check(t, "waits", []time.Duration{0, 0, 0, time.Second, 2 * time.Second}, waits)
}

func TestAWriteIsNotRepeatedBeforeTheWatchShowsIt(t *testing.T) {
	t.Parallel()
	o := newOpponent(t)
	found := o.seen(o.edited)
	o.wrote("shop", found, o.bundle, o.now)
	check(t, "the version that was overwritten", pause{wait: watchDelay}, o.examine("shop", update, found, o.now))
	check(t, "the same later", pause{wait: time.Second}, o.examine("shop", update, found, o.now.Add(watchDelay-time.Second)))
	check(t, "when the watch is lost", pause{}, o.examine("shop", update, found, o.now.Add(watchDelay)))

	o.wrote("shop", nil, o.bundle, o.now)
	check(t, "what was created", pause{wait: watchDelay}, o.examine("shop", create, nil, o.now))
	o.examine("shop", none, o.seen(o.bundle), o.now)
	check(t, "what was created, seen and deleted", pause{}, o.examine("shop", create, nil, o.now))
}
