// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
)

const (
	overlapQueue = "root_ca_overlap"

	// maxProvisional is how long published bundles stay while the state cannot be read. An outage
	// of the API is shorter; with a missing permission a changed root CA would never be published.
	maxProvisional = 5 * time.Minute

	// requestTimeout bounds how long an API that does not answer delays a change of the bundle.
	requestTimeout = 10 * time.Second

	// conflictRequeue is the delay of the next sync after another process was faster to write.
	conflictRequeue = time.Second

	// resyncInterval is how long an edited state may stay before it is repaired.
	resyncInterval = 10 * time.Minute

	// rolloutInterval is how often objects with another bundle are counted.
	rolloutInterval = 30 * time.Second
)

// BundleControllerConfig is what a BundleController needs. Clock may be nil.
type BundleControllerConfig struct {
	Client kubernetes.Interface
	// Source gets every bundle to publish.
	Source *Source
	// File is the first bundle; Set replaces it.
	File *Bundle
	// Overlap is how long a previous root CA is published beside its successor; 0 disables overlaps.
	Overlap  time.Duration
	Recorder *events.Recorder
	// Process is the regarding object of Events.
	Process *corev1.ObjectReference
	Metrics *Metrics
	Loops   *reconcile.Metrics
	Clock   clock.WithTicker
}

// BundleController decides which bundle is published. Build it with NewBundleController; only
// the leader runs it, because it writes the state.
type BundleController struct {
	BundleControllerConfig

	file  atomic.Pointer[Bundle]
	leads atomic.Bool
	queue *reconcile.Runner[string]

	// Only the one worker of the queue uses the fields below.
	state     state     // that the last sync decided, or zero
	stateRead bool      // once, or found to be missing
	stored    bool      // there was something in the Secret when it was last read or written
	startedAt time.Time // the first sync, or zero
	startFile *Bundle   // the file then
}

// NewBundleController returns a controller that publishes the file provisionally until Run has read
// the state.
func NewBundleController(config BundleControllerConfig) *BundleController {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	c := &BundleController{BundleControllerConfig: config}
	c.file.Store(config.File)
	c.queue = reconcile.New(reconcile.Config[string]{
		Name: overlapQueue, Workers: 1, Sync: c.sync, Metrics: config.Loops, Clock: config.Clock,
	})
	c.setProvisional()
	return c
}

// setProvisional sets the file as the Source's bundle in a process that does not lead. When it
// begins to lead, other controllers start at the same time and use that bundle. During a possible
// overlap it replaces no published bundle.
func (c *BundleController) setProvisional() {
	bundle := c.file.Load()
	if c.Overlap > 0 {
		bundle = bundle.Provisional()
	}
	c.Source.Set(bundle)
}

// Set sets the content of a changed file. It does not block and is safe for concurrent use, also on a
// replica that does not lead.
func (c *BundleController) Set(bundle *Bundle) {
	c.file.Store(bundle)
	if !c.leads.Load() {
		c.setProvisional()
	}
	c.queue.AddIfRunning(StateName) // otherwise Run begins with the file
}

// Run works until ctx ends. It may be called again once it has returned: it then reads the state
// again, which another process may have written.
func (c *BundleController) Run(ctx context.Context) error {
	c.state, c.stateRead, c.stored, c.startedAt, c.startFile = state{}, false, false, time.Time{}, nil
	c.leads.Store(true)
	defer func() {
		c.leads.Store(false)
		c.setProvisional()
	}()
	c.queue.Add(StateName)
	c.queue.Run(ctx)
	return nil
}

// sync publishes first and then writes the state. A crash in between loses nothing: the state still
// has the previous file as current, so the next start begins the overlap.
func (c *BundleController) sync(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	file := c.file.Load()
	if c.startedAt.IsZero() {
		c.startedAt, c.startFile = c.Clock.Now(), file
	}
	object, err := c.get(ctx)
	switch {
	case err == nil:
		err = c.readState(ctx, object)
	case apierrors.IsNotFound(err):
		c.stateRead = true // there is nothing to read
	}
	now := c.Clock.Now()
	decided := c.decide(file, now)
	c.publish(ctx, decided, now)
	if err == nil {
		err = c.write(ctx, object, decided.state)
	}
	if err != nil {
		c.warn(err)
	}
	look := resyncInterval
	if c.outdated(decided.published) > 0 {
		look = rolloutInterval
	}
	if decided.next.After(now) {
		look = min(look, decided.next.Sub(now))
	}
	c.queue.AddAfter(StateName, look)
	return err
}

// decide ends an overlap only after all objects have had both root CAs, but at the latest after
// twice its time: a policy may refuse the write of some object permanently.
func (c *BundleController) decide(file *Bundle, now time.Time) decision {
	decided := plan(file, c.state, now, c.Overlap, 0)
	if len(decided.ended) == 0 {
		return decided
	}
	held := plan(file, c.state, now, c.Overlap, c.Overlap)
	if c.outdated(held.published) == 0 {
		return decided
	}
	if len(held.ended) < len(decided.ended) {
		c.Recorder.Warn(c.Process, "RootCAOverlapHeld", "Publish",
			"a previous root CA is published for longer than --root-ca-overlap, because some objects do not have the new one yet")
	}
	return held
}

// outdated counts the objects that hold another bundle, also for the metric.
func (c *BundleController) outdated(bundle *Bundle) int {
	all := 0
	for resource, n := range c.Source.Outdated(bundle) {
		c.Metrics.setOutdated(resource, n)
		all += n
	}
	return all
}

// get reads the state's Secret.
func (c *BundleController) get(ctx context.Context) (*corev1.Secret, error) {
	object, err := c.Client.CoreV1().Secrets(StateNamespace).Get(ctx, StateName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%w, and this process may not create it: apply manifests/permissions, or \"kubectl -n %s create secret generic %s\"",
			err, StateNamespace, StateName)
	}
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", StateNamespace, StateName, err)
	}
	return object, nil
}

// readState takes over the state the first time it can be read. After that only this process writes
// it.
func (c *BundleController) readState(ctx context.Context, object *corev1.Secret) error {
	var found state
	var damage string
	if len(object.Data) > 0 { // it comes with nothing in it
		var err error
		if found, damage, err = decode(object, c.Clock.Now(), c.Overlap); err != nil {
			return err
		}
	} else if c.stored {
		damage = "it was emptied"
	}
	c.stored = len(object.Data) > 0
	if damage != "" {
		klog.FromContext(ctx).Info("Root CA state is damaged and will be repaired", "secret", stateRef(), "damage", damage)
		c.Recorder.Warn(stateObject(), "RootCAStateRepaired", "Repair", "wrote it again: "+damage)
	}
	if !c.stateRead {
		c.state, c.stateRead = merge(found, c.state), true
	}
	return nil
}

// publish sets the decided bundle in the Source and reports the changes.
func (c *BundleController) publish(ctx context.Context, decided decision, now time.Time) {
	c.state = decided.state
	bundle := decided.published
	if c.isProvisional(now) {
		bundle = bundle.Provisional()
	}
	if current := c.Source.Current(); current == nil || !bundle.same(current) {
		c.Source.Set(bundle)
	}
	c.report(ctx, decided)
}

// isProvisional reports whether a published bundle may hold a root CA that this process does not
// know yet and must not remove. A file that changes after the start is published at once.
func (c *BundleController) isProvisional(now time.Time) bool {
	return !c.stateRead && c.file.Load() == c.startFile && now.Before(c.startedAt.Add(min(c.Overlap, maxProvisional)))
}

// write updates the Secret if it does not hold the wanted state.
func (c *BundleController) write(ctx context.Context, object *corev1.Secret, wanted state) error {
	next := wanted.encodeInto(object)
	if next == nil {
		return nil
	}
	_, err := c.Client.CoreV1().Secrets(StateNamespace).Update(ctx, next, metav1.UpdateOptions{FieldManager: meta.FieldManager})
	if apierrors.IsConflict(err) {
		c.queue.AddAfter(StateName, conflictRequeue)
		return nil
	}
	if err != nil {
		return fmt.Errorf("write secret %s/%s: %w", StateNamespace, StateName, err)
	}
	c.stored = true
	klog.FromContext(ctx).V(2).Info("Wrote the state of the root CA", "secret", stateRef(), "inOverlap", len(wanted.previous))
	return nil
}

func stateRef() klog.ObjectRef { return klog.KRef(StateNamespace, StateName) }

func stateObject() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: StateNamespace, Name: StateName}
}
