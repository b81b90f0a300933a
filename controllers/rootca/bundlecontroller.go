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

	// maxProvisional is how long what is published is left alone while the state cannot
	// be read. An outage of the API is shorter; a missing permission would otherwise keep
	// a changed root CA from everybody.
	maxProvisional = 5 * time.Minute

	// requestTimeout keeps an API that does not answer from delaying what the time or the
	// file decides.
	requestTimeout = 10 * time.Second

	// conflictRequeue is when to sync again after another process was faster to write.
	conflictRequeue = time.Second

	// lookInterval is how long it may take until a state that somebody has edited, or deleted
	// and created again, is written again.
	lookInterval = 10 * time.Minute

	// rolloutInterval is how often it is counted how many objects still hold another bundle.
	rolloutInterval = 30 * time.Second
)

// BundleControllerConfig is what a BundleController needs. Clock may be nil.
type BundleControllerConfig struct {
	Client kubernetes.Interface
	// Source gets every bundle that is to be published.
	Source *Source
	// File is the bundle to begin with; Set replaces it.
	File *Bundle
	// Overlap is how long a previous root CA is published beside its successor; 0 means
	// not at all.
	Overlap  time.Duration
	Recorder *events.Recorder
	// Process is what Events are about.
	Process *corev1.ObjectReference
	Metrics *Metrics
	Loops   *reconcile.Metrics
	Clock   clock.WithTicker
}

// BundleController decides which bundle is in force. Build it with NewBundleController; only
// the leader runs it, because it writes the state.
type BundleController struct {
	BundleControllerConfig

	file  atomic.Pointer[Bundle]
	leads atomic.Bool
	queue *reconcile.Runner[string]

	// Only the one worker of the queue uses what follows.
	state     state     // that the last sync decided, or zero
	stateRead bool      // once, or found to be missing
	stored    bool      // there was something in the Secret when it was last read or written
	startedAt time.Time // the first sync, or zero
	startFile *Bundle   // the file then
}

// NewBundleController has the Source publish the file provisionally until Run has read the
// state.
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

// setProvisional is for a process that does not lead: when it begins to, other controllers
// start beside this one and use what the Source has. It has the file, and while an overlap
// may be under way the file replaces nothing that is published.
func (c *BundleController) setProvisional() {
	bundle := c.file.Load()
	if c.Overlap > 0 {
		bundle = bundle.Provisional()
	}
	c.Source.Set(bundle)
}

// Set takes the content of a changed file. It does not block and may be called from any
// goroutine, also on a replica that does not lead.
func (c *BundleController) Set(bundle *Bundle) {
	c.file.Store(bundle)
	if !c.leads.Load() {
		c.setProvisional()
	}
	c.queue.AddIfRunning(StateName) // or else Run begins with the file as it is then
}

// Run works until ctx ends. It may be called again once it has returned: it reads the state
// again, because another process may have written it meanwhile.
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

// sync publishes first and writes the state then. A crash in between loses nothing: the
// state still names the previous file as current, so the next start begins the overlap.
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
		c.stateRead = true // nobody knows more than this process
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
	look := lookInterval
	if c.outdated(decided.published) > 0 {
		look = rolloutInterval
	}
	if decided.next.After(now) {
		look = min(look, decided.next.Sub(now))
	}
	c.queue.AddAfter(StateName, look)
	return err
}

// decide ends no overlap before all objects have had both root CAs, but waits for that no longer
// than another overlap: a policy may refuse the write of some object for ever.
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

// get is the state's Secret as the API has it now.
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

// readState takes what the state says the first time it can be read. After that this
// process is the only one that writes it and knows better.
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
		klog.FromContext(ctx).Info("The state of the root CA is damaged and is written again", "secret", stateRef(), "damage", damage)
		c.Recorder.Warn(stateObject(), "RootCAStateRepaired", "Repair", "wrote it again: "+damage)
	}
	if !c.stateRead {
		c.state, c.stateRead = merge(found, c.state), true
	}
	return nil
}

// publish hands the decided bundle to the Source and reports what changes with it.
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

// isProvisional reports whether something may be published that this process does not know
// of and must leave alone. A file that changes while we run is meant to reach everybody.
func (c *BundleController) isProvisional(now time.Time) bool {
	return !c.stateRead && c.file.Load() == c.startFile && now.Before(c.startedAt.Add(min(c.Overlap, maxProvisional)))
}

// write makes the Secret hold the wanted state.
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
