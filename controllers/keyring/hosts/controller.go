// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosts compares the key rings of the hosts. Each host has its key ring file, and a
// rotation changes one after the other.
//
// The rule "may this key sign" has its home in signing.Guard. This package adds what the published rings
// say (MaySign, MayFill), and package keyprobe what kube-apiserver says.
//
// Each host publishes its ring, without the keys, as an entry of Secret
// kube-system/sa-controller-manager-key-ring, and reads the others there. One function, Stand, says how a
// ring file stands to them, for readiness, the commands, doctor and metrics. A host that is late signs with
// its own next key once that is active in the newest ring, and no host uses a revoked key. No published ring
// adds a key.
//
// A host that has published an entry counts until it is forgotten, and so does a kube-apiserver that was once
// seen: no clock decides. An entry keeps the newest ring that the host has used, so that an older file is
// noticed.
package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/notify"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/series"
	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/signing"
)

const (
	// renewal is how often a process renews the entry of its host. One that was not renewed for takeover, by the
	// clock of another process of that host, is written by that.
	renewal  = time.Minute
	takeover = 3*renewal + 10*time.Second
)

const notCompared = "the key rings of the hosts are not compared yet"

// comparing is the one key of the queue.
const comparing = "compare"

// Config is what a Controller needs.
type Config struct {
	Client kubernetes.Interface
	// Read reads the ring file. State returns what this process uses of it, and SignsWith the key that it signs
	// with, "" if it may use none. These two must not block.
	Read      func() (ring.State, error)
	State     func() ring.State
	SignsWith func() string
	// Away returns why a key of the ring cannot sign, and for how long, "" if it signs. It must not block.
	Away func(ring.Key) (reason string, lasted time.Duration)
	// Shown, if not nil, reports whether every directory of --publish-keys has a key.
	Shown func(id string) bool
	// Apply changes the ring in use as the other ones want it.
	Apply func(ring.Desired)
	// Host is the name of this host, as kube-apiserver on it would write it into its identity Lease, and Writer
	// that of this process on it, the same after a restart.
	Host, Writer string
	// Signer is set if this process is the external signer of kube-apiserver. Then it writes the entry.
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

	// Compared notifies of each comparison of the rings.
	Compared notify.Change[*Standing]

	informer cache.SharedIndexInformer
	secrets  corev1listers.SecretLister
	loop     *reconcile.Runner[string]
	stands   atomic.Pointer[Standing] // nil before the first comparison

	// Only the one worker of the loop uses the fields below.

	started time.Time
	next    string        // the next key that is shown,
	shown   time.Duration // for how long before since
	since   time.Time
	desired ring.Desired
	// entry is that of this host as it was seen last, when it was another one before, and wrote when this process
	// has written it.
	entry   string
	entryAt time.Time
	wrote   time.Time

	accepted []check.KeyFact // revoked keys that kube-apiserver has
	askedAt  time.Time
}

// New returns one that does not run yet.
func New(config Config) *Controller {
	c := &Controller{Config: config}
	c.informer = coreinformers.NewFilteredSecretInformer(
		config.Client, metav1.NamespaceSystem, 0, cache.Indexers{}, reconcile.OnlyNamed(SecretName))
	c.secrets = corev1listers.NewSecretLister(c.informer.GetIndexer())
	c.loop = reconcile.New(reconcile.Config[string]{Name: "key_ring", Workers: 1, Sync: c.sync, Metrics: config.Loops})
	return c
}

// RingChanged queues another publication and comparison of the ring. It does not block.
func (c *Controller) RingChanged() { c.loop.AddIfRunning(comparing) }

// Findings is the check of /readyz: what is wrong with the ring file of this host. It fails while this host signs
// nothing, and while its file is not the ring that it has used: after a restart tokens would be refused. It does not
// block.
func (c *Controller) Findings() (check.Result, error) {
	stands := c.stands.Load()
	if stands == nil {
		return check.Result{Note: notCompared}, nil
	}
	if worst, found := stands.Worst(); found {
		worst.Unready = check.RingWorse(worst.Code, check.RingMissing)
		return check.Result{Findings: []check.Finding{worst.Finding}}, nil
	}
	return check.Result{Note: stands.Note()}, nil
}

// MaySign returns an error if nothing may be signed, because another ring does not have the active key or
// it was revoked, so that its tokens are invalid or soon will be. It does not block. Before the first
// comparison it forbids nothing: kube-apiserver may need its tokens in order to start.
func (c *Controller) MaySign() error {
	if c.stands.Load() == nil {
		return nil
	}
	return c.unless(check.Signs)
}

// MayFill is MaySign for long-lived tokens. They also wait for the first comparison.
func (c *Controller) MayFill() error { return c.unless(check.Signs) }

// MayReissue returns an error if no token Secret may be re-issued: the ring of this process is not
// published, or another one is forked or unreadable or has an active key that is not here. A host that is
// late re-issues to the key that all follow.
func (c *Controller) MayReissue() error { return c.unless(check.Reissues) }

func (c *Controller) unless(blocked check.Blocks) error {
	stands := c.stands.Load()
	if stands == nil {
		return fmt.Errorf("%s: %w", notCompared, reconcile.ErrStaleCache)
	}
	return stands.Refuses(blocked)
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	return c.loop.RunWatching(ctx, comparing, reconcile.Watch{Informer: c.informer})
}

func (c *Controller) sync(ctx context.Context, _ string) error {
	secret, _ := c.secrets.Secrets(metav1.NamespaceSystem).Get(SecretName) // nil if there is none
	published, readErr := Read(secret)
	_, foreign := errors.AsType[*stateobject.UnknownVersionError](readErr)
	// The file is read after the Secret, so that it is not older than what another process has published of it.
	file := File{Host: c.Host, Writer: c.Writer, Process: true}
	file.State, file.Err = c.Read()
	var err error
	if !foreign {
		err = c.publish(ctx, file, &published)
		c.apply(ctx, published.Desired(c.State()))
	}
	file.SignsWith = c.SignsWith()
	stands := Stand(file, published)
	if err != nil {
		stands.add(check.RingUnpublished, check.KeyArgs{Why: err.Error()})
	}
	if readErr != nil {
		stands.add(check.RingUnreadable, check.KeyArgs{Why: readErr.Error()})
	}
	c.ask(ctx, published)
	stands.Facts = append(stands.Facts, c.accepted...)
	c.report(ctx, c.stands.Swap(stands), stands)
	c.Compared.Notify(stands)
	own, _ := published.Entry(c.Host)
	c.loop.AddAfter(comparing, own.renewAfter())
	return err
}

// ask finds out whether the kube-apiserver of this process accepts a revoked key.
func (c *Controller) ask(ctx context.Context, p Published) {
	if len(p.Removed) == 0 || !c.askedAt.IsZero() && time.Since(c.askedAt) < renewal {
		return
	}
	c.askedAt = time.Now()
	accepted, err := AcceptedRevoked(ctx, "kube-apiserver of host "+c.Host, c.Client, p.Removed)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not ask which keys kube-apiserver accepts", "err", err.Error())
		return
	}
	c.accepted = accepted
}

// AcceptedRevoked returns the facts about the revoked keys that a kube-apiserver accepts. One whose issuer is no https URL
// publishes no key set, and is asked for each key.
func AcceptedRevoked(ctx context.Context, server string, client kubernetes.Interface, revoked ring.Revocations) (
	facts []check.KeyFact, err error) {
	keys, unpublished := keyprobe.PublishedKeys(ctx, apiservers.Getter(client))
	if unpublished != nil && !apierrors.IsNotFound(unpublished) {
		return nil, unpublished
	}
	for _, gone := range revoked {
		has := slices.ContainsFunc(keys, gone.Is)
		for _, id := range slices.Compact([]string{gone.ID, gone.Digest}) {
			if unpublished != nil && !has {
				has, err = keyprobe.HasKey(ctx, client, id)
			}
			if err != nil {
				return facts, err
			}
		}
		if has {
			facts = append(facts, check.Key(check.RevokedKeyAccepted, check.KeyArgs{Host: server, Key: gone.ID}))
		}
	}
	return facts, nil
}

func (c *Controller) apply(ctx context.Context, desired ring.Desired) {
	desired.Revoked = ring.Union(desired.Revoked, c.desired.Revoked) // the Secret may have been deleted
	if desired.Active == c.desired.Active && slices.Equal(desired.Revoked, c.desired.Revoked) {
		return
	}
	c.desired = desired
	c.Apply(desired)
	klog.FromContext(ctx).Info("Followed the published key rings", "active", desired.Active, "revoked", len(desired.Revoked))
}

// report shows the worst fact about the ring of this host, or that there is none, once.
func (c *Controller) report(ctx context.Context, before, stands *Standing) {
	c.Metrics.show(stands.Facts)
	note := stands.Note()
	if before != nil && before.Note() == note {
		return
	}
	worst, wrong := stands.Worst()
	klog.FromContext(ctx).Info("Compared the key rings of the hosts", "fact", worst.Code, "note", note)
	if wrong {
		c.Recorder.Warn(c.Process, "KeyRingMismatch", note+": "+worst.Remedy)
	}
}

// publish writes the entry of this host if it has changed or is due to be renewed, and adds what the ring has
// revoked.
func (c *Controller) publish(ctx context.Context, file File, published *Published) error {
	now := time.Now().UTC().Truncate(time.Second)
	update := func(p *Published) (changed bool) {
		changed = p.Revoke(slices.Concat(file.State.Revoked, c.State().Revoked, c.desired.Revoked))
		present, known := p.Entry(c.Host)
		if !c.writes(present, known) {
			return changed
		}
		entry := c.entryFor(file, present, now)
		if known && time.Since(c.wrote) < present.renewAfter() {
			entry.Renewed = present.Renewed
			if entry.ShowsNext == present.ShowsNext && entry.NextSeconds >= present.NextSeconds {
				entry.NextSeconds = present.NextSeconds
			}
		}
		if known && reflect.DeepEqual(entry, present) {
			return changed
		}
		p.Entries = append(slices.DeleteFunc(slices.Clone(p.Entries), func(entry Entry) bool { return entry.Host == c.Host }), entry)
		return true
	}
	read := *published
	if !update(published) {
		return nil
	}
	err := Edit(ctx, c.Client, func(p *Published) error {
		update(p)
		*published = *p
		return nil
	})
	if err != nil {
		*published = read // the API has nothing else
		return err
	}
	c.wrote = time.Now()
	klog.FromContext(ctx).V(2).Info("Published the key ring", "generation", file.State.Generation, "version", file.State.Version())
	return nil
}

// writes reports whether this process writes the entry of its host. Of two processes the one with the socket of
// the external signer does, and otherwise the first one, while it renews it.
func (c *Controller) writes(present Entry, known bool) bool {
	if seen := present.Writer + present.Renewed.String(); c.entry != seen || c.entryAt.IsZero() {
		c.entry, c.entryAt = seen, time.Now()
	}
	return !known || c.Signer && !present.Signer || present.Writer == c.Writer && present.Signer == c.Signer ||
		time.Since(c.entryAt) > takeover
}

// entryFor returns what this process publishes: the newest ring that the host has used, which may be in the entry or in
// memory alone.
func (c *Controller) entryFor(file File, present Entry, now time.Time) Entry {
	entry, inFile := EntryOf(file.State), file.State.Version()
	for _, used := range []Entry{EntryOf(c.State()), present} {
		if used.version() == "" || relate(file.State, used) == older || entry.File != "" && used.Generation < entry.Generation {
			continue
		}
		entry = used
		entry.File = cmp.Or(inFile, "none")
	}
	entry.Host, entry.Writer, entry.Signer, entry.Renewed = c.Host, c.Writer, c.Signer, now
	entry.Signs, entry.Away, entry.SignsWith = []string{}, map[string]Away{}, c.SignsWith()
	for _, key := range file.State.Keys {
		reason, lasted := c.Away(key)
		switch {
		case reason == "":
			entry.Signs = append(entry.Signs, key.ID)
		case key.Role != signing.Retired:
			entry.Away[key.ID] = Away{Reason: reason, Minutes: int64(lasted.Minutes())}
		}
	}
	next, _ := file.State.Next()
	c.countNext(&entry, next.ID, present)
	return entry
}

// countNext counts for how long the next key is shown. A restart is no break, and neither is the time until the
// directories are written again after it.
func (c *Controller) countNext(entry *Entry, next string, present Entry) {
	now := time.Now()
	if c.started.IsZero() {
		c.started, c.since = now, now
		if present.ShowsNext {
			c.next, c.shown = present.key(signing.Next), time.Duration(present.NextSeconds)*time.Second
		}
	}
	entry.ShowsNext = next != "" && (c.Shown == nil || c.Shown(next))
	switch {
	case !entry.ShowsNext && now.Sub(c.started) > renewal:
		c.next = ""
	case entry.ShowsNext && c.next != next:
		c.next, c.shown, c.since = next, 0, now
	}
	entry.NextSeconds = 0
	if entry.ShowsNext {
		entry.NextSeconds = int64((c.shown + now.Sub(c.since)).Seconds())
	}
}

// Metrics show what is wrong with the key ring of this host.
type Metrics struct{ mismatches *metrics.GaugeVec }

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	return &Metrics{mismatches: series.GaugeVec(mustRegister, "sacm_key_ring_mismatch",
		"1 while something is wrong with the key ring of this host, by what that is, as in the findings of keys list.", "verdict")}
}

func (m *Metrics) show(facts []check.KeyFact) {
	for _, code := range append(check.RingCodes(), check.RevokedKeyAccepted) {
		found := slices.ContainsFunc(facts, func(fact check.KeyFact) bool { return fact.Code == code })
		m.mismatches.WithLabelValues(code).Set(series.Bool(found))
	}
}
