// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package leaderelection

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// standbyLock is the lock of a process that waits: while another one renews the Lease, it answers
// from a watch of this one object. client-go's elector polls, and cannot be told that the Lease was
// released. A watch that is silent or stale only delays: an update has the resourceVersion of a read.
type standbyLock struct {
	resourcelock.Interface

	waiting  context.Context //nolint:containedctx // ends when this process leads, or waits no more
	config   *Config
	released func()

	watching atomic.Bool
	watches  sync.WaitGroup
	shown    atomic.Pointer[observation]
}

// observation is what the watch has shown last.
type observation struct {
	record *resourcelock.LeaderElectionRecord
	at     time.Time
}

// Get implements resourcelock.Interface.
func (l *standbyLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	// A leader does not renew after the deadline, so the Lease may be about to expire.
	if last := l.shown.Load(); last != nil && l.isHeld(last.record) && l.waiting.Err() == nil &&
		time.Since(last.at) < l.config.RenewDeadline.Duration {
		raw, err := json.Marshal(*last.record)
		return last.record, raw, err
	}
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && l.isHeld(record) && l.waiting.Err() == nil && l.watching.CompareAndSwap(false, true) {
		l.watches.Go(l.watch)
	}
	return record, raw, err
}

func (l *standbyLock) isHeld(record *resourcelock.LeaderElectionRecord) bool {
	return record.HolderIdentity != "" && record.HolderIdentity != l.Identity()
}

// watch calls released when the holder releases the Lease. When the watch ends, the next live read
// begins another. A Lease that somebody deletes is no release: its holder may not know it yet.
func (l *standbyLock) watch() {
	defer l.watching.Store(false)
	defer l.shown.Store(nil)
	leases, err := l.config.Watcher.CoordinationV1().Leases(l.config.ResourceNamespace).Watch(l.waiting, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, l.config.ResourceName).String(),
	})
	if err != nil {
		klog.FromContext(l.waiting).V(2).Info("Failed to watch the Lease, polling it", "err", err)
		return
	}
	defer leases.Stop()
	defer context.AfterFunc(l.waiting, leases.Stop)()
	for event := range leases.ResultChan() {
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok || event.Type == watch.Deleted {
			return
		}
		next := &observation{resourcelock.LeaseSpecToLeaderElectionRecord(&lease.Spec), time.Now()}
		previous := l.shown.Swap(next)
		if previous != nil && l.isHeld(previous.record) && next.record.HolderIdentity == "" {
			l.released()
		}
	}
}
