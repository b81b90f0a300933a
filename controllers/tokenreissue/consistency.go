// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/signing"
)

// settleDelay is how long rings may differ before it is reported: a change reaches the
// replicas one after the other.
const settleDelay = 10 * time.Second

const reasonMismatch = "KeyRingMismatch"

// RingConsistencyConfig is what a RingConsistency needs. Clock may be nil.
type RingConsistencyConfig struct {
	Informers *informers.Informers
	// Ring is that of this process.
	Ring     *signing.Keyring
	Recorder *events.Recorder
	// Process is the object that Events about this process regard.
	Process *corev1.ObjectReference
	Metrics *Metrics
	Loops   *reconcile.Metrics
	Clock   clock.WithTicker
}

// RingConsistency watches, on every replica, whether the ring of this process is the one
// that the leader has published, and reports if it is not. It changes nothing. Build it with
// NewRingConsistency before the informers are started.
type RingConsistency struct {
	RingConsistencyConfig

	published func() *corev1.ConfigMap
	informer  cache.SharedIndexInformer
	loop      *reconcile.Runner[work]
	status    atomic.Pointer[string]

	// Only the loop's one worker looks at what follows.

	found    drift
	since    time.Time // when it was found first
	reported drift
}

const comparing work = "compare"

// NewRingConsistency builds one that does not run yet.
func NewRingConsistency(config RingConsistencyConfig) *RingConsistency {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	c := &RingConsistency{RingConsistencyConfig: config}
	c.published, c.informer = config.Informers.KeyRing()
	c.loop = reconcile.New(reconcile.Config[work]{Name: "key_ring", Workers: 1, Sync: c.sync, Metrics: config.Loops, Clock: config.Clock})
	c.show("not compared yet")
	return c
}

// RingChanged has the ring compared again. It does not block.
func (c *RingConsistency) RingChanged() { c.loop.AddIfRunning(comparing) }

// Status says in a few words whether the rings are the same. It does not block.
func (c *RingConsistency) Status() string { return *c.status.Load() }

// Run compares until ctx ends. The informers must be synced.
func (c *RingConsistency) Run(ctx context.Context) error {
	c.loop.Add(comparing)
	return reconcile.WithHandlers(func() { c.loop.Run(ctx) },
		reconcile.Handled{What: "the published key ring", Informer: c.informer, Handler: reconcile.OnEvery(func(any) { c.RingChanged() })})
}

// sync waits to see whether a drift that was not reported yet goes away.
func (c *RingConsistency) sync(ctx context.Context, _ work) error {
	found := compare(summaryOf(c.Ring.Ring()), c.published())
	if found != c.found {
		c.found, c.since = found, c.Clock.Now()
	}
	if left := settleDelay - c.Clock.Since(c.since); found != inSync && found != c.reported && left > 0 {
		c.loop.AddAfter(comparing, left)
		return nil
	}
	c.reported = found
	c.report(ctx, found)
	return nil
}

func (c *RingConsistency) report(ctx context.Context, found drift) {
	own := summaryOf(c.Ring.Ring())
	note := describe(found, own, c.published())
	if c.Status() == note {
		return
	}
	c.show(note)
	c.Metrics.mismatch(found)
	logger := klog.FromContext(ctx).WithValues("generation", own.generation, "hash", own.hash)
	if found == inSync {
		logger.Info("The key ring is the one that the leader has published")
		return
	}
	logger.Info("The key ring is not the one that the leader has published", "verdict", found)
	if found != unpublished {
		c.Recorder.Warn(c.Process, reasonMismatch, "Compare", note+remedy(found))
	}
}

func (c *RingConsistency) show(status string) { c.status.Store(&status) }

// describe says what was found.
func describe(found drift, own publishedRing, published *corev1.ConfigMap) string {
	mine := fmt.Sprintf("the key ring of this process (generation %d, hash %s)", own.generation, own.hash)
	where := metav1.NamespaceSystem + "/" + informers.KeyRingName
	if published == nil {
		return mine + " is not published in ConfigMap " + where
	}
	theirs, err := readPublishedRing(published)
	if err != nil {
		return fmt.Sprintf("ConfigMap %s cannot be read: %v", where, err)
	}
	if found == inSync {
		return mine + " is the one that the leader has published"
	}
	return fmt.Sprintf("%s is not the one that the leader has published (generation %d, hash %s)", mine, theirs.generation, theirs.hash)
}

// remedy says what to do about it.
func remedy(found drift) string {
	switch found {
	case behind:
		return ": this one is older; bring the ring of the other replica here (keys import) or, if this one is right, delete the ConfigMap; " +
			"until then this process re-issues nothing"
	case ahead:
		return ": this one is newer; bring the ring of this replica to the leader (keys import)"
	case forked:
		return ": neither is newer; copy the ring file that is right to all replicas, then delete the ConfigMap; until then nothing is re-issued"
	default:
		return ": delete it, and the leader writes it again; until then nothing is re-issued"
	}
}
