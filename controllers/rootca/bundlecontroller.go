// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
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

	// requestTimeout bounds how long an API that does not answer delays a change of the bundle.
	requestTimeout = 10 * time.Second

	// conflictRequeue is the delay of the next sync after another process was faster to write.
	conflictRequeue = time.Second

	// resyncInterval is how long an edited state may stay before it is repaired.
	resyncInterval = 10 * time.Minute
)

var errTooLarge = errors.New("the root CA file is too large")

// BundleControllerConfig is what a BundleController needs. Clock may be nil.
type BundleControllerConfig struct {
	Client kubernetes.Interface
	// Source has the content of the file at first, which Set replaces, and gets every bundle to publish.
	Source *Source
	// Overlap is how long a previous root CA is published beside its successor; 0 disables overlaps.
	Overlap  time.Duration
	Recorder *events.Recorder
	// Process is the regarding object of Events.
	Process *corev1.ObjectReference
	Loops   *reconcile.Metrics
	Clock   clock.WithTicker
}

// BundleController decides which bundle is published. Build it with NewBundleController; only
// the leader runs it, because it writes the state.
type BundleController struct {
	BundleControllerConfig

	file  atomic.Pointer[Bundle]
	queue *reconcile.Runner[string]

	// known is the state that the last sync decided or, at first, has read. It is nil before. Only the
	// one worker of the queue uses it.
	known *state
}

// NewBundleController returns a controller. The Source's bundle is unknown until Run has read the
// state.
func NewBundleController(config BundleControllerConfig) *BundleController {
	config.Clock = cmp.Or[clock.WithTicker](config.Clock, clock.RealClock{})
	c := &BundleController{BundleControllerConfig: config}
	c.file.Store(config.Source.current.Swap(unknown))
	c.queue = reconcile.New(reconcile.Config[string]{
		Name: overlapQueue, Workers: 1, Sync: c.sync, Metrics: config.Loops, Clock: config.Clock,
	})
	return c
}

// Set sets the content of a changed file. It does not block and is safe for concurrent use, also on a
// replica that does not lead.
func (c *BundleController) Set(bundle *Bundle) {
	c.file.Store(bundle)
	c.queue.AddIfRunning(StateName) // otherwise Run begins with the file
}

// Check returns an error while the file is too large to be published.
func (c *BundleController) Check() (detail string, err error) { return "", c.file.Load().CheckSize() }

// Run works until ctx ends. It may be called again once it has returned: it then reads the state
// again, which another process may have written.
func (c *BundleController) Run(ctx context.Context) error {
	c.known = nil
	defer c.Source.alone.Store(nil)
	defer c.Source.current.Store(unknown)
	c.Source.rollout.Open() // for the first bundle
	c.queue.Add(StateName)
	var loops sync.WaitGroup
	loops.Go(func() { c.Source.rollout.Run(ctx) })
	loops.Go(func() { c.queue.Run(ctx) })
	loops.Wait()
	return nil
}

// sync publishes first and then writes the state. A crash in between loses nothing: the state still
// has the previous file, so the next start begins the overlap.
func (c *BundleController) sync(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	object, err := c.read(ctx)
	if c.known != nil {
		err = errors.Join(c.publish(ctx), err)
	} else {
		c.Source.publishAlone(c.file.Load())
	}
	if object != nil {
		err = errors.Join(err, c.write(ctx, object))
	}
	c.warn(err)
	return err
}

// read returns the state's Secret, nil if its content is unknown. The first answer, also that there is
// none, is what this process starts from. After that only this process writes it.
func (c *BundleController) read(ctx context.Context) (*corev1.Secret, error) {
	object, err := c.Client.CoreV1().Secrets(StateNamespace).Get(ctx, StateName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.know(state{})
		return nil, fmt.Errorf("%w, and this process may not create it: "+
			"apply manifests/permissions, or \"kubectl -n %s create secret generic %s\"",
			err, StateNamespace, StateName)
	}
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", StateNamespace, StateName, err)
	}
	found, damage, err := decode(object, c.Clock.Now(), c.Overlap)
	if err != nil {
		return nil, err
	}
	if damage != "" {
		klog.FromContext(ctx).Info("Root CA state is damaged and will be repaired", "secret", stateRef(), "damage", damage)
		c.Recorder.Warn(&corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: StateNamespace, Name: StateName},
			"RootCAStateRepaired", "wrote it again: "+damage)
	}
	c.know(found)
	return object, nil
}

func (c *BundleController) know(found state) {
	if c.known == nil {
		c.known = &found
	}
}

// publish sets the bundle to publish in the Source. If that would be too large, the last union stays,
// without what has ended.
func (c *BundleController) publish(ctx context.Context) error {
	now := c.Clock.Now()
	decided, err := c.decide(now)
	if decided == nil {
		return err
	}
	c.known = &decided.state
	if decided.published.hash != c.Source.current.Load().hash {
		klog.FromContext(ctx).V(2).Info("Publishing another root CA bundle",
			"certificates", len(decided.published.certificates), "bytes", len(decided.published.pem))
		c.Source.Set(decided.published)
	}
	c.report(ctx, decided)
	next := resyncInterval
	if len(decided.state.previous) > 0 {
		next = min(next, decided.state.until.Sub(now))
	}
	c.queue.AddAfter(StateName, next)
	return err
}

// decide returns nil if not even the last file can be published.
func (c *BundleController) decide(now time.Time) (*decision, error) {
	var err error
	for _, file := range []*Bundle{c.file.Load(), c.known.file} {
		if file == nil {
			continue
		}
		decided := plan(file, *c.known, now, c.Overlap)
		size := len(decided.published.pem)
		if size <= maxUnion {
			return decided, err
		}
		err = cmp.Or(file.CheckSize(), fmt.Errorf("%w together with the root CAs in overlap: %d bytes, want %d at most; it is not "+
			"published before others have ended: remove certificates from it, or start without an overlap", errTooLarge, size,
			maxUnion))
	}
	return nil, err
}

// write updates the Secret if it does not hold the known state.
func (c *BundleController) write(ctx context.Context, object *corev1.Secret) error {
	next := object.DeepCopy()
	next.Data = c.known.encode()
	if maps.EqualFunc(object.Data, next.Data, bytes.Equal) {
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
	klog.FromContext(ctx).V(2).Info("Wrote the state of the root CA", "secret", stateRef(), "inOverlap", len(c.known.previous))
	return nil
}

func stateRef() klog.ObjectRef { return klog.KRef(StateNamespace, StateName) }
