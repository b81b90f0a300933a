// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package consistency compares the key rings of the replicas. Each host has a key ring file of its
// own, and a rotation changes one after the other.
//
// The rule "may this key sign" has its home in signing.Guard. This package adds what the rings of other
// replicas say: no key signs that a newer published ring does not have (MaySign, MayFill). Package
// keyprobe adds what kube-apiserver says.
//
// Every replica publishes its ring, without the keys, as a line of Secret
// kube-system/sa-controller-manager-key-ring, and reads the lines of the others there.
package consistency

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// settleDelay is how long rings may differ before it is reported: a change reaches the
// replicas one after the other.
const settleDelay = 10 * time.Second

const reasonMismatch = "KeyRingMismatch"

// comparing is the one key of the queue.
const comparing = "compare"

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// State returns the ring of this process. It must not block.
	State func() ring.State
	// Compared, if not nil, is called after each comparison of the rings. It must not block.
	Compared func()
	// Host is the name of this host, as kube-apiserver on it would write it into its
	// identity Lease.
	Host string
	// Signer is set if this process is the external signer of kube-apiserver.
	Signer   bool
	Recorder *events.Recorder
	// Process is the object that Events about this process regard.
	Process *corev1.ObjectReference
	Metrics *Metrics
	Loops   *reconcile.Metrics
}

// Controller publishes the ring of this process, compares it with those of the other replicas, and
// decides whether its active key may be used. Build it with New.
type Controller struct {
	Config

	informer cache.SharedIndexInformer
	loop     *reconcile.Runner[string]
	status   atomic.Pointer[string]
	rings    atomic.Pointer[[]PublishedRing] // nil before the first comparison

	// Only the one worker of the loop uses the fields below.

	replica   string // the name of this process's line
	announced string // the version that was published last
	signs     string // the active key at the last sync
	stopped   map[string]time.Time
	found     drift
	since     time.Time // when it was first found
	reported  drift
}

// New returns one that does not run yet.
func New(config Config) *Controller {
	c := &Controller{Config: config, replica: config.Host + "_" + utilrand.String(5), stopped: map[string]time.Time{}}
	c.informer = coreinformers.NewFilteredSecretInformer(
		config.Client, metav1.NamespaceSystem, 0, cache.Indexers{}, reconcile.OnlyNamed(SecretName))
	c.loop = reconcile.New(reconcile.Config[string]{Name: "key_ring", Workers: 1, Sync: c.sync, Metrics: config.Loops})
	c.show("the key rings of the replicas are not compared yet")
	return c
}

// secret returns the cached Secret, nil if there is none.
func (c *Controller) secret() *corev1.Secret {
	obj, exists, err := c.informer.GetStore().GetByKey(metav1.NamespaceSystem + "/" + SecretName)
	if err != nil || !exists {
		return nil
	}
	return obj.(*corev1.Secret)
}

// RingChanged queues another publication and comparison of the ring. It does not block.
func (c *Controller) RingChanged() { c.loop.AddIfRunning(comparing) }

// Status describes whether the rings are the same. It does not block.
func (c *Controller) Status() string { return *c.status.Load() }

// MaySign returns an error if nothing may be signed with the active key because a newer ring does not
// have it, so that its tokens are invalid or soon will be. It does not block. Before the first
// comparison it forbids nothing: kube-apiserver may need its tokens in order to start.
func (c *Controller) MaySign() error {
	if c.rings.Load() == nil {
		return nil
	}
	return c.unless(func(_ ring.State, found standing) bool { return found.drift == lost })
}

// MayFill is MaySign for long-lived tokens. They also wait for the first comparison, and while another
// key is active in the newest ring.
func (c *Controller) MayFill() error {
	return c.unless(func(own ring.State, found standing) bool {
		return found.drift == lost || found.active != "" && found.active != own.Active().ID
	})
}

// MayReissue returns an error if no token Secret may be re-issued: the ring of this process is not published,
// or another one is newer, forked or unreadable. It does not block.
func (c *Controller) MayReissue() error {
	return c.unless(func(_ ring.State, found standing) bool { return found.drift != inSync })
}

func (c *Controller) unless(forbids func(ring.State, standing) bool) error {
	own, rings := c.State(), c.rings.Load()
	if rings == nil {
		return fmt.Errorf("%s: %w", c.Status(), reconcile.ErrStaleCache)
	}
	if found := judge(own, *rings); forbids(own, found) {
		return errors.New(found.describe(own))
	}
	return nil
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	return c.loop.RunWatching(ctx, comparing, reconcile.Watch{Informer: c.informer})
}

// sync reports a new drift only after it has lasted for settleDelay.
func (c *Controller) sync(ctx context.Context, _ string) error {
	own, secret := c.State(), c.secret()
	rings, err := PublishedRings(secret)
	c.rings.Store(&rings)
	if c.Compared != nil {
		c.Compared()
	}
	found := judge(own, rings)
	if _, unknown := errors.AsType[*stateobject.UnknownVersionError](err); unknown {
		found.drift = unreadable
	} else {
		err = c.publish(ctx, own, secret, rings)
	}
	if found.drift != c.found {
		c.found, c.since = found.drift, time.Now()
	}
	left := settleDelay - time.Since(c.since)
	if found.drift != inSync && found.drift != lost && found.drift != c.reported && left > 0 {
		c.loop.AddAfter(comparing, left)
		return err
	}
	c.reported = found.drift
	c.report(ctx, own, found)
	return err
}

func (c *Controller) report(ctx context.Context, own ring.State, found standing) {
	note := found.describe(own)
	if c.Status() == note {
		return
	}
	c.show(note)
	c.Metrics.mismatch(found.drift)
	klog.FromContext(ctx).Info("Compared the key rings of the replicas", "verdict", found.drift, "note", note)
	if found.drift != inSync && found.drift != unpublished {
		c.Recorder.Warn(c.Process, reasonMismatch, note+found.remedy())
	}
}

func (c *Controller) show(status string) { c.status.Store(&status) }

// publish writes the line of this process if it is missing. With a new ring it also removes the lines
// of older and equal rings and of previous processes on this host, so that lines of dead replicas do
// not accumulate. A running replica writes its own again.
func (c *Controller) publish(ctx context.Context, own ring.State, secret *corev1.Secret, rings []PublishedRing) error {
	if active := own.Active().ID; c.signs != active {
		if c.signs != "" {
			c.stop(c.signs, time.Now())
		}
		c.signs = active
	}
	next := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: SecretName}}
	if secret != nil {
		next = secret.DeepCopy()
	}
	if next.Data == nil {
		next.Data = map[string][]byte{}
	}
	for _, other := range rings {
		isOld := compare(own, other) == inSync || c.announced == "" && other.Host == c.Host
		if c.announced != own.Version() && other.Replica != c.replica && isOld {
			c.absorb(other, own)
			delete(next.Data, ringPrefix+other.Replica)
		}
	}
	line, err := c.line(own)
	if err != nil {
		return err
	}
	next.Data[ringPrefix+c.replica] = line
	stateobject.Stamp(next.Data)
	if secret != nil && maps.EqualFunc(next.Data, secret.Data, bytes.Equal) {
		c.announced = own.Version()
		return nil
	}
	secrets := c.Client.CoreV1().Secrets(metav1.NamespaceSystem)
	if secret == nil {
		// The Secret comes with the manifests. With more permissions this process creates it.
		_, err = secrets.Create(ctx, next, metav1.CreateOptions{FieldManager: meta.FieldManager})
	} else {
		_, err = secrets.Update(ctx, next, metav1.UpdateOptions{FieldManager: meta.FieldManager})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", reconcile.ErrStaleCache, err)
	}
	if err != nil {
		return fmt.Errorf("publish the key ring in %s, which comes with manifests/permissions: %w", ringSecret, err)
	}
	c.announced = own.Version()
	klog.FromContext(ctx).Info("Published the key ring", "generation", own.Generation, "version", own.Version(), "active", own.Active().ID)
	return nil
}

// line returns what this process publishes.
func (c *Controller) line(own ring.State) ([]byte, error) {
	line := published(own)
	line.Host, line.Signer = c.Host, c.Signer
	maps.DeleteFunc(c.stopped, func(id string, _ time.Time) bool { return line.Keys[id] != signing.Retired })
	line.Stopped = c.stopped
	return json.Marshal(line)
}

// absorb keeps the times in a line that is about to be removed.
func (c *Controller) absorb(other PublishedRing, own ring.State) {
	for id, at := range other.Stopped {
		c.stop(id, at)
	}
	if active := other.Active(); active != own.Active().ID {
		c.stop(active, time.Now())
	}
}

func (c *Controller) stop(id string, at time.Time) {
	if at = at.UTC().Truncate(time.Second); at.After(c.stopped[id]) {
		c.stopped[id] = at
	}
}

// Metrics show whether the replicas have the same ring.
type Metrics struct{ mismatches *metrics.GaugeVec }

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{mismatches: metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "sacm_key_ring_mismatch",
		Help: "1 if the key ring of this replica is not the newest of those that the replicas have published, by how it stands to another one: " +
			"behind, forked, lost (a newer ring does not have the key that signs here: nothing is signed with it), unreadable, or unpublished.",
	}, []string{"verdict"})}
	mustRegister(m.mismatches)
	return m
}

func (m *Metrics) mismatch(found drift) {
	for _, each := range drifts()[1:] {
		value := 0.0
		if each == found {
			value = 1
		}
		m.mismatches.WithLabelValues(string(each)).Set(value)
	}
}
