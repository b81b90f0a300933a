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
	"sa-controller-manager/signing"
)

// patience is how long rings may differ before it is told: a change reaches the
// replicas one after the other.
const patience = 10 * time.Second

const reasonMismatch = "KeyRingMismatch"

// AgreementConfig is what an Agreement needs. Clock may be nil.
type AgreementConfig struct {
	Informers *informers.Informers
	// Ring is that of this process.
	Ring     *signing.Keyring
	Recorder *events.Recorder
	// Process is the object that Events about this process regard.
	Process *corev1.ObjectReference
	Metrics *Metrics
	Clock   clock.WithTicker
}

// Agreement watches, on every replica, whether the ring of this process is the one that
// the leader has published, and tells if not. It changes nothing. Build it with
// NewAgreement before the informers are started.
type Agreement struct {
	AgreementConfig

	published func() *corev1.ConfigMap
	informer  cache.SharedIndexInformer
	changed   chan struct{}
	status    atomic.Pointer[string]
}

// NewAgreement builds an agreement that does not run yet.
func NewAgreement(config AgreementConfig) *Agreement {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	a := &Agreement{AgreementConfig: config, changed: make(chan struct{}, 1)}
	a.published, a.informer = config.Informers.KeyRing()
	a.show("not compared yet")
	return a
}

// RingChanged has the ring looked at again. It does not block.
func (a *Agreement) RingChanged() {
	select {
	case a.changed <- struct{}{}:
	default: // a look is due anyway
	}
}

// Status says in a few words whether the rings agree. It does not block.
func (a *Agreement) Status() string { return *a.status.Load() }

// Run compares until ctx ends. The informers must be synced.
func (a *Agreement) Run(ctx context.Context) error {
	look := func(any) { a.RingChanged() }
	handler, err := a.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: look,
	})
	if err != nil {
		return fmt.Errorf("watch config map %s/%s: %w", metav1.NamespaceSystem, informers.KeyRingName, err)
	}
	var told verdict
	for ctx.Err() == nil {
		if found := a.judge(); found == agreed || a.persists(ctx, found, told) {
			told = found
			a.tell(ctx, found)
		}
		if told != a.judge() {
			continue // it has changed meanwhile
		}
		select {
		case <-ctx.Done():
		case <-a.changed:
		}
	}
	return a.informer.RemoveEventHandler(handler)
}

// persists waits to see whether a disagreement that was not told yet goes away.
func (a *Agreement) persists(ctx context.Context, found, told verdict) bool {
	if found == told {
		return true
	}
	timer := a.Clock.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return a.judge() == found
	}
}

func (a *Agreement) judge() verdict { return judge(publicationOf(a.Ring.Ring()), a.published()) }

// tell is called for each new verdict.
func (a *Agreement) tell(ctx context.Context, found verdict) {
	own := publicationOf(a.Ring.Ring())
	note := describe(found, own, a.published())
	if a.Status() == note {
		return
	}
	a.show(note)
	a.Metrics.mismatch(found)
	logger := klog.FromContext(ctx)
	if found == agreed {
		logger.Info("The key ring is the one that the leader has published", "generation", own.generation, "hash", own.hash)
		return
	}
	logger.Info("The key ring is not the one that the leader has published", "verdict", found, "generation", own.generation, "hash", own.hash)
	if found != unpublished {
		a.Recorder.Warn(a.Process, reasonMismatch, "Compare", note+remedy(found))
	}
}

func (a *Agreement) show(status string) { a.status.Store(&status) }

// describe says what was found.
func describe(found verdict, own publication, published *corev1.ConfigMap) string {
	mine := fmt.Sprintf("the key ring of this process (generation %d, hash %s)", own.generation, own.hash)
	where := metav1.NamespaceSystem + "/" + informers.KeyRingName
	if published == nil {
		return mine + " is not published in ConfigMap " + where
	}
	theirs, err := readPublication(published)
	if err != nil {
		return fmt.Sprintf("ConfigMap %s cannot be read: %v", where, err)
	}
	if found == agreed {
		return mine + " is the one that the leader has published"
	}
	return fmt.Sprintf("%s is not the one that the leader has published (generation %d, hash %s)", mine, theirs.generation, theirs.hash)
}

// remedy says what to do about it.
func remedy(found verdict) string {
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
