// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package consistency compares the key rings of the replicas. Each host has a key ring file of its
// own, and a rotation changes one after the other.
//
// The rule "may this key sign" has its home in signing.Guard. This package adds what the rings of other
// hosts say (MaySign, MayFill), and Package keyprobe what kube-apiserver says.
//
// Every replica publishes its ring, without the keys, as a line of Secret
// kube-system/sa-controller-manager-key-ring, renews it, and reads the lines of the others there. A host
// that is late signs with its own next key once that is active in the newest ring, and no host uses a
// revoked key. No published ring adds a key.
package consistency

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/events"
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
	// State returns the ring file of this process, and SignsWith the key that it signs with, "" if it may
	// use none. They must not block.
	State     func() ring.State
	SignsWith func() string
	// CanSign reports whether a key of the ring signs now. It must not block.
	CanSign func(ring.Key) bool
	// Shown, if not nil, reports whether every directory of --publish-keys has a key.
	Shown func(id string) bool
	// Obey has the ring follow the other ones.
	Obey func(ring.Orders)
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

// Controller publishes the ring of this process, compares it with those of the other hosts, and
// decides whether its active key may be used. Build it with New.
type Controller struct {
	Config

	informer  cache.SharedIndexInformer
	loop      *reconcile.Runner[string]
	status    atomic.Pointer[string]
	published atomic.Pointer[Published] // nil before the first comparison

	// Only the one worker of the loop uses the fields below.

	replica  string // the name of this process's line
	started  time.Time
	next     string // the next key that is shown, and since when
	since    time.Time
	orders   ring.Orders
	found    drift
	foundAt  time.Time // when it was first found
	reported drift
}

// New returns one that does not run yet.
func New(config Config) *Controller {
	c := &Controller{Config: config, replica: config.Host + "_" + utilrand.String(5)}
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

// MaySign returns an error if nothing may be signed, because another ring does not have the active key or
// it was revoked, so that its tokens are invalid or soon will be. It does not block. Before the first
// comparison it forbids nothing: kube-apiserver may need its tokens in order to start.
func (c *Controller) MaySign() error {
	if c.published.Load() == nil {
		return nil
	}
	return c.unless(lost)
}

// MayFill is MaySign for long-lived tokens. They also wait for the first comparison.
func (c *Controller) MayFill() error { return c.unless(lost) }

// MayReissue returns an error if no token Secret may be re-issued: the ring of this process is not
// published, or another one is forked or unreadable or has an active key that is not here. A host that is
// late re-issues to the key that all follow.
func (c *Controller) MayReissue() error {
	return c.unless(unpublished, unreadable, forked, missing, lost)
}

func (c *Controller) unless(forbidden ...drift) error {
	own, published := c.State(), c.published.Load()
	if published == nil {
		return fmt.Errorf("%s: %w", c.Status(), reconcile.ErrStaleCache)
	}
	if found := published.compare(own, c.Host, c.SignsWith(), time.Now()); slices.Contains(forbidden, found.drift) {
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
	own := c.State()
	published, err := Read(c.secret())
	_, foreign := errors.AsType[*stateobject.UnknownVersionError](err)
	if err = nil; !foreign {
		err = c.publish(ctx, own, &published)
		c.obey(ctx, published.Orders(own, c.Host))
	}
	c.published.Store(&published)
	if c.Compared != nil {
		c.Compared()
	}
	c.loop.AddAfter(comparing, renewal)
	found := published.compare(own, c.Host, c.SignsWith(), time.Now())
	if foreign {
		found.drift = unreadable
	}
	if found.drift != c.found {
		c.found, c.foundAt = found.drift, time.Now()
	}
	left := settleDelay - time.Since(c.foundAt)
	if found.drift != inSync && !found.drift.worse(forked) && found.drift != c.reported && left > 0 {
		c.loop.AddAfter(comparing, left)
		return err
	}
	c.reported = found.drift
	c.report(ctx, own, found)
	return err
}

func (c *Controller) obey(ctx context.Context, orders ring.Orders) {
	for _, revoked := range c.orders.Revoked {
		if !slices.Contains(orders.Revoked, revoked) { // the Secret was deleted
			orders.Revoked = append(orders.Revoked, revoked)
		}
	}
	if orders.Active == c.orders.Active && slices.Equal(orders.Revoked, c.orders.Revoked) {
		return
	}
	c.orders = orders
	c.Obey(orders)
	klog.FromContext(ctx).Info("Followed the published key rings", "active", orders.Active, "revoked", len(orders.Revoked))
}

func (c *Controller) report(ctx context.Context, own ring.State, found standing) {
	note := found.describe(own)
	if c.Status() == note {
		return
	}
	c.show(note)
	c.Metrics.mismatch(found.drift)
	klog.FromContext(ctx).Info("Compared the key rings of the replicas", "verdict", found.drift, "note", note)
	if found.drift.worse(unpublished) {
		c.Recorder.Warn(c.Process, reasonMismatch, note+found.remedy())
	}
}

func (c *Controller) show(status string) { c.status.Store(&status) }

// publish writes the line of this process if it has changed or is due to be renewed, and adds what the ring
// has revoked. It removes the lines of previous processes of this host, and those that are long dead.
func (c *Controller) publish(ctx context.Context, own ring.State, published *Published) error {
	now := time.Now().UTC().Truncate(time.Second)
	update := func(p *Published) (line Line, changed bool) {
		line = c.line(own, p, now)
		present := slices.IndexFunc(p.Lines, func(line Line) bool { return line.Replica == c.replica })
		changed = p.Revoke(slices.Concat(own.Removed, c.orders.Revoked))
		if present >= 0 && now.Sub(p.Lines[present].Renewed) < renewal {
			line.Renewed = p.Lines[present].Renewed
		}
		changed = changed || present < 0 || !reflect.DeepEqual(line, p.Lines[present])
		p.Lines = append(slices.DeleteFunc(p.Lines, func(line Line) bool {
			previous := line.Host == c.Host && (line.Replica == c.replica || line.Renewed.Before(c.started))
			return previous || line.version() != "" && now.Sub(line.Renewed) > forgetAge
		}), line)
		return line, changed
	}
	read := slices.Clone(published.Lines)
	line, changed := update(published)
	if !changed {
		return nil
	}
	err := Edit(ctx, c.Client, func(p *Published) error {
		update(p)
		*published = *p
		return nil
	})
	if err != nil {
		published.Lines = read // the API has no others
		return err
	}
	klog.FromContext(ctx).V(2).Info("Published the key ring", "generation", own.Generation, "version", own.Version(), "signs", line.SignsWith)
	return nil
}

// line returns what this process publishes.
func (c *Controller) line(own ring.State, p *Published, now time.Time) Line {
	line := LineOf(own)
	line.Replica, line.Host, line.Signer, line.Renewed = c.replica, c.Host, c.Signer, now
	line.Signs, line.SignsWith = []string{}, c.SignsWith()
	for _, key := range own.Keys {
		if c.CanSign(key) {
			line.Signs = append(line.Signs, key.ID)
		}
	}
	if c.started.IsZero() {
		c.started = now
		for _, previous := range p.Lines { // a restart is no break
			if previous.Host == c.Host && !previous.NextSince.IsZero() {
				c.next, c.since = previous.key(signing.Next), previous.NextSince
			}
		}
	}
	switch next := line.key(signing.Next); {
	case next == "" || c.Shown != nil && !c.Shown(next):
		if now.Sub(c.started) > renewal {
			c.next = ""
		}
		return line
	case c.next != next:
		c.next, c.since = next, now
	}
	line.NextSince = c.since
	return line
}

// Metrics show whether the replicas have the same ring.
type Metrics struct{ mismatches *metrics.GaugeVec }

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{mismatches: metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "sacm_key_ring_mismatch",
		Help: "1 if the key ring of this replica is not the newest of those that the replicas have published, by how it stands to another one: " +
			"late (it signs on), missing (the active key of another ring is not here), forked, lost (another ring does not " +
			"have the key that signs here: nothing is signed with it), unreadable, or unpublished.",
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
