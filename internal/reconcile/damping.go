// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// dampedObjects bounds the memory of a Damping: the rollout of a root CA writes 3,000 objects a minute. What does not fit
// is delayed less.
const dampedObjects = 4096

// Damping delays writes that another client undoes again and again. The first write of an object is sent at
// once, the second First after it, and each further one after twice the delay, up to Most. An object that needs
// no write for Most after its delay begins immediately again. K is the object and what is written into it: other content
// is not delayed. No key may be in two goroutines at a time; different ones may.
type Damping[K comparable] struct {
	first, most time.Duration
	clock       clock.PassiveClock
	writes      *utilcache.LRUExpireCache // of K: damped
}

// damped is the last write of an object.
type damped struct {
	next   time.Time
	delay  time.Duration
	writes int // without a pause
}

// NewDamping returns a Damping with these delays.
func NewDamping[K comparable](first, most time.Duration, clock clock.PassiveClock) *Damping[K] {
	return &Damping[K]{first, most, clock, utilcache.NewLRUExpireCacheWithClock(dampedObjects, clock)}
}

// Delay returns how long the next write of key must wait, 0 if it may be sent now.
func (d *Damping[K]) Delay(key K) time.Duration {
	if last, ok := d.writes.Get(key); ok {
		return max(0, last.(damped).next.Sub(d.clock.Now()))
	}
	return 0
}

// Wrote notes a write of key that has succeeded. It reports whether other clients have undone the last two, too: to
// do so once is anybody's right.
func (d *Damping[K]) Wrote(key K) (again bool) {
	this := damped{delay: d.first, writes: 1}
	if last, ok := d.writes.Get(key); ok {
		this = damped{delay: min(2*last.(damped).delay, d.most), writes: last.(damped).writes + 1}
	}
	this.next = d.clock.Now().Add(this.delay)
	d.writes.Add(key, this, this.delay+d.most)
	return this.writes > 2
}
