// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// fencedLock is a lock whose holder learns at the renew deadline that the lease could not
// be renewed. client-go's elector says so later: it first tries to give the lease away,
// which takes up to another renew deadline while the API does not answer
// (tools/leaderelection, renew), and by then somebody else may lead. Nor may it give the
// lease away then: it takes the resourceVersion from a fresh reading and the holder from
// an old one, and would empty the lease of whoever leads now.
type fencedLock struct {
	resourcelock.Interface

	deadline time.Duration
	// now is time.Now if it is nil. What it returns has both readings, the time of day and
	// that of the clock which runs evenly.
	now func() time.Time

	mu      sync.Mutex
	renewed time.Time // when the last write began that succeeded
	timer   *time.Timer
	expired bool
}

// Create implements resourcelock.Interface.
func (l *fencedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.note(func() error { return l.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (l *fencedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && l.isExpired() {
		return errLeaseLost
	}
	return l.note(func() error { return l.Interface.Update(ctx, record) })
}

// note counts from the beginning of a write: others count from when it arrives.
func (l *fencedLock) note(write func() error) error {
	began := l.clock()
	if err := write(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = began
	// One that has expired is not set again: what it has stopped stays stopped.
	if l.timer != nil && l.timer.Stop() {
		l.timer.Reset(l.left())
	}
	return nil
}

// fence has expire called once the lease has not been renewed for the deadline, until the
// function that it returns is called.
func (l *fencedLock) fence(expire func()) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(l.left(), func() {
		l.mu.Lock()
		l.expired = true
		l.mu.Unlock()
		expire()
	})
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.timer.Stop()
		l.timer = nil
	}
}

func (l *fencedLock) isExpired() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expired
}

// overdue reports whether the deadline has passed, whether or not expire was called yet. The
// time of day counts too: the other clock stands still while a machine is suspended. One
// that merely jumps forward costs the writes until the next renewal, and one that jumps
// back changes nothing.
func (l *fencedLock) overdue() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	return now.Sub(l.renewed) >= l.deadline || now.Round(0).Sub(l.renewed.Round(0)) >= l.deadline
}

func (l *fencedLock) left() time.Duration { return l.renewed.Add(l.deadline).Sub(l.clock()) }

func (l *fencedLock) clock() time.Time {
	if l.now == nil {
		return time.Now()
	}
	return l.now()
}
