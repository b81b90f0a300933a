// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// fencedLock is a lock that notices at the renew deadline that the Lease was not renewed. client-go's
// elector reports it later: it first tries to release the Lease, which takes up to another renew
// deadline while the API server does not answer (tools/leaderelection, renew), and by then another
// process may lead. The lock also stops that release: client-go takes the resourceVersion from a new
// read and the holder from an old one, and would empty the Lease of the new leader.
type fencedLock struct {
	resourcelock.Interface

	deadline time.Duration
	// now is time.Now if nil. Its result has both a wall clock and a monotonic clock reading.
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

// note records the start of a successful write: other replicas count from its arrival.
func (l *fencedLock) note(write func() error) error {
	began := l.clock()
	if err := write(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = began
	// An expired timer is not set again: the work stays stopped.
	if l.timer != nil && l.timer.Stop() {
		l.timer.Reset(l.left())
	}
	return nil
}

// fence calls expire when the Lease was not renewed for the deadline, unless end was called before.
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

// overdue reports whether the deadline has passed, even if expire was not called yet. The wall clock
// counts, too, because the monotonic clock stands still while a machine is suspended. A wall clock
// that jumps forward stops writes until the next renewal; one that jumps back has no effect.
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
