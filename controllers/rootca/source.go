// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/notify"
	"sa-controller-manager/internal/reconcile"
)

const (
	rolloutQueue = "root_ca_rollout"

	// rolloutRate is how many objects of all kinds together get another bundle in a second.
	// 10,000 namespaces and 100,000 Secrets take 37 minutes. The burst is small, for other
	// clients of kube-apiserver wait behind it.
	rolloutRate  = 50
	rolloutBurst = 10

	// rolloutWorkers keep the rate up while a write takes less than 160 ms.
	rolloutWorkers = 8

	// An object that another client replaces again and again is written after a second, and then less and less often.
	firstDelay, longestDelay = time.Second, time.Minute
)

// ReasonReplaced and NoteReplaced are of the Event about an object in which the bundle does not stay.
const (
	ReasonReplaced = "RootCAReplaced"
	NoteReplaced   = "another client, or an admission policy, removes the root CA bundle again and again: it is written again, " +
		"less and less often, up to once a minute"
)

// errUnknown is an error of syncs that need the bundle before the state was read.
var errUnknown = fmt.Errorf("the root CA to publish is not known, because its state was not read yet: %w", reconcile.ErrStaleCache)

// unknown is the bundle of a Source while it is not known.
var unknown = &Bundle{}

// Write replaces an object's bundle when the rollout reaches it.
type Write func(context.Context, cache.ObjectName) error

// Source holds the bundle to publish. What is there already is replaced at one rate for all kinds of objects.
type Source struct {
	// Changed notifies of the bundle of each Set. ConfigMaps subscribe first, because new Pods need them.
	Changed notify.Change[*Bundle]

	current atomic.Pointer[Bundle]
	// alone is the file, for new namespaces while current is unknown because the state cannot be read.
	alone        atomic.Pointer[Bundle]
	aloneChanged notify.Change[*Bundle]

	rollout *reconcile.Runner[target]
	limiter *rate.Limiter
	writers map[corev1.ResourceName]Write
	damping *reconcile.Damping[written]
}

// target is an object that the rollout writes.
type target struct {
	Resource corev1.ResourceName
	Object   cache.ObjectName
}

// written is an object and the bundle in it.
type written struct {
	target

	hash [sha256.Size]byte
}

// NewSource returns a Source of bundle, which is nil if there is no root CA to publish.
func NewSource(bundle *Bundle, loops *reconcile.Metrics) *Source {
	s := &Source{
		limiter: rate.NewLimiter(rolloutRate, rolloutBurst), writers: map[corev1.ResourceName]Write{},
		damping: reconcile.NewDamping[written](firstDelay, longestDelay, clock.RealClock{}),
	}
	s.rollout = reconcile.New(reconcile.Config[target]{Name: rolloutQueue, Workers: rolloutWorkers, Sync: s.roll, Metrics: loops})
	s.current.Store(bundle)
	return s
}

// Current returns the bundle to publish now, nil if there is no root CA, or an error while it is not
// known.
func (s *Source) Current() (*Bundle, error) {
	if bundle := s.current.Load(); bundle != unknown {
		return bundle, nil
	}
	return nil, errUnknown
}

// Set replaces the bundle.
func (s *Source) Set(bundle *Bundle) {
	s.current.Store(bundle)
	s.Changed.Notify(bundle)
}

// publishAlone has the file published in namespaces that have no bundle, although a root CA in overlap may belong beside
// it: without any their Pods cannot start.
func (s *Source) publishAlone(file *Bundle) {
	if file != nil && file.CheckSize() == nil && s.alone.Swap(file) != file {
		s.aloneChanged.Notify(file)
	}
}

// Register sets how the rollout writes the bundle into objects of a resource. It must not be called once a rollout runs.
func (s *Source) Register(resource corev1.ResourceName, write Write) { s.writers[resource] = write }

// QueueWrite queues an object that holds another bundle for the rollout. It is a no-op while no rollout is running.
func (s *Source) QueueWrite(resource corev1.ResourceName, object cache.ObjectName) {
	s.rollout.AddIfRunning(target{resource, object})
}

// Delay returns how long the next write of the bundle into an object must wait, 0 if it may be sent now.
func (s *Source) Delay(resource corev1.ResourceName, object cache.ObjectName) time.Duration {
	return s.damping.Delay(s.written(target{resource, object}))
}

// Wrote notes that kube-apiserver has accepted a write of the bundle into an object. It reports whether
// other clients have undone the last two, too.
func (s *Source) Wrote(resource corev1.ResourceName, object cache.ObjectName) (again bool) {
	return s.damping.Wrote(s.written(target{resource, object}))
}

func (s *Source) written(object target) written { return written{object, s.current.Load().Hash()} }

func (s *Source) roll(ctx context.Context, next target) error {
	if delay := s.Delay(next.Resource, next.Object); delay > 0 {
		s.rollout.AddAfter(next, delay)
		return nil
	}
	if err := s.limiter.Wait(ctx); err != nil {
		return fmt.Errorf("wait to write the root CA into %s %s: %w", next.Resource, next.Object, err)
	}
	return s.writers[next.Resource](ctx, next.Object)
}
