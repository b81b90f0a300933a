// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reissue re-issues token Secrets whose key the key ring has retired, so
// that the key can be pruned one day.
//
// By default it does so side by side: it creates a new Secret, which names the old one and which the
// token controller fills; once that has a token it is put first in the account's list. Clients may go
// on to use the old one, which the legacy token cleaner deletes when it is unused. An annotation on
// the Secret forbids it. Secrets of users are re-issued only if the annotation asks for it.
//
// A leader re-issues nothing unless its ring is the newest published one (package hosts), so that
// replicas with different rings do not undo each other's work. It then decides account by account, from
// the cache, by a pure plan function. Before it creates anything, it reads Secret and account live and
// plans again. The objects show what has been done, so the next leader continues from there.
//
// A Secret that was marked invalid, whose account was recreated, or whose token was not signed by the
// retired key, is never re-issued: access that was revoked must not come back. Nothing is re-issued
// for a key that the ring does not have.
package reissue

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/signing"
)

const (
	queueName = "token_reissue"

	// interval is the time between two surveys, which read only the caches, and soon the delay of one
	// after a change.
	interval = time.Minute
	soon     = 5 * time.Second

	// perSecond bounds how many Secrets are re-issued. Each costs some five requests.
	perSecond = 10

	// slotLife is how long a slot can be used, so that unused ones do not add up.
	slotLife = 10 * time.Second

	// cacheSyncGrace is how long the caches may take to show a created Secret before another one is
	// created.
	cacheSyncGrace = 10 * time.Second
)

// Config is what a Controller needs. Clock and NewSuffix may be nil.
type Config struct {
	Client    kubernetes.Interface
	Informers *informers.Informers
	// Ring is that of this process.
	Ring *signing.Keyring
	// MayReissue returns why the published rings forbid it, or nil.
	MayReissue func() error
	// Confirmed reports whether kube-apiserver accepts tokens of the key with that ID.
	Confirmed func(keyID string) bool
	Recorder  *events.Recorder
	Metrics   *Metrics
	Loops     *reconcile.Metrics

	// Off disables re-issue; Secrets are only counted.
	Off bool
	// Auto is set if the token controller gives every account its Secret.
	Auto bool

	Clock clock.WithTicker
	// NewSuffix makes the random end of a new Secret's name.
	NewSuffix func() string
}

// Controller re-issues token Secrets. Build it with New before the informers are started.
type Controller struct {
	Config

	accounts        corev1listers.ServiceAccountLister
	secrets         tokensecrets.Lister
	accountInformer cache.SharedIndexInformer
	secretInformer  cache.SharedIndexInformer
	loop            *reconcile.Runner[key]
	limiter         *rate.Limiter

	// Only the one worker of the loop uses the fields below.

	created expectations
	refused refusals
	slots   map[types.UID]time.Time // when a Secret may get its successor
}

// key is one kind of work, and the account if it is about one.
type key struct {
	Work    work
	Account cache.ObjectName
}

// String returns the key as logs show it.
func (k key) String() string {
	if k.Work != reissuing {
		return string(k.Work)
	}
	return string(k.Work) + " " + k.Account.String()
}

type work string

const (
	surveying work = "survey"
	reissuing work = "reissue"
)

// New builds a controller that does not run yet.
func New(config Config) *Controller {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.NewSuffix == nil {
		config.NewSuffix = tokensecrets.NewSuffix
	}
	c := &Controller{Config: config, limiter: rate.NewLimiter(perSecond, perSecond)}
	c.accounts, c.accountInformer = config.Informers.Accounts()
	c.secrets, c.secretInformer = config.Informers.TokenSecrets()
	c.loop = reconcile.New(reconcile.Config[key]{Name: queueName, Workers: 1, Sync: c.sync, Metrics: config.Loops, Clock: config.Clock})
	return c
}

// QueueSurvey queues another survey, if this process leads. It is called when something has changed that
// re-issue may wait for: the ring, those that are published, or that kube-apiserver accepts the active
// key. It does not block.
func (c *Controller) QueueSurvey() { c.loop.AddIfRunning(key{Work: surveying}) }

// Run works until ctx ends and returns when no sync is under way any more. The informers
// must be synced. It may be called again once it has returned.
func (c *Controller) Run(ctx context.Context) error {
	defer c.Metrics.end()
	c.created, c.refused, c.slots = expectations{}, refusals{}, map[types.UID]time.Time{}
	c.loop.Add(key{Work: surveying})
	return reconcile.WithHandlers(ctx, func() { c.loop.Run(ctx) },
		reconcile.Handled{What: "serviceaccounts", Informer: c.accountInformer, Handler: reconcile.OnChanges{
			// An account that has work has a Secret that queueSecret queues.
			ResourceEventHandler: reconcile.OnEveryName(c.queue), Due: func(any) bool { return false },
		}},
		reconcile.Handled{What: "token secrets", Informer: c.secretInformer, Handler: reconcile.OnEvery(c.queueSecret)})
}

// queueSecret queues the account if the Secret is or may become one half of a pair.
func (c *Controller) queueSecret(obj any) {
	secret, ok := obj.(*tokensecrets.TokenSecret)
	if !ok || secret.AccountName == "" {
		return
	}
	retired := secret.Token != nil && isRetired(c.Ring.Ring(), secret.Token.KeyID())
	if retired || secret.Predecessor != (tokensecrets.Predecessor{}) {
		c.queue(secret.Account())
		c.loop.AddAfter(key{Work: surveying}, soon)
	}
}

func (c *Controller) queue(account cache.ObjectName) {
	if !c.Off {
		c.loop.Add(key{reissuing, account})
	}
}

func (c *Controller) sync(ctx context.Context, key key) error {
	if key.Work == surveying {
		c.survey()
		return nil
	}
	return c.reissue(ctx, key.Account)
}

// reissue does the planned steps for the account's Secrets.
func (c *Controller) reissue(ctx context.Context, name cache.ObjectName) error {
	ring, ok := c.mayReissue()
	if !ok {
		return nil
	}
	o := observe(meta.CachedAccount(c.accounts, name), c.secrets.OfAccount(name), ring)
	var errs []error
	for _, step := range o.plan(c.Auto, c.Clock.Now()) {
		if now, ok := c.mayReissue(); !ok || now != ring {
			break // a survey begins again: an account may have thousands of Secrets
		}
		if err := c.act(ctx, step, o); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// mayReissue returns the ring and whether Secrets may be re-issued by it. kube-apiserver must accept its active
// key: a rollback may have activated one that kube-apiserver no longer knows.
func (c *Controller) mayReissue() (*signing.Ring, bool) {
	ring := c.Ring.Ring()
	return ring, !c.Off && c.MayReissue() == nil && c.Confirmed(ring.ActiveID())
}

// survey counts the Secrets, forgets deleted ones, and queues the accounts with work left.
func (c *Controller) survey() {
	ring := c.Ring.Ring()
	byKey, byProgress := map[string]int{}, map[Progress]int{}
	account := func(name cache.ObjectName) *corev1.ServiceAccount { return meta.CachedAccount(c.accounts, name) }
	all := c.secrets.All()
	for _, secret := range all {
		if name := secret.Account(); (observed{pairs: pairs{account: account(name)}}).isUnused(secret) {
			c.queue(name) // after a rollback it may be superfluous, and none is a candidate
		}
		if secret.Token != nil {
			byKey[keyState(ring, secret.Token.KeyID())]++
		}
	}
	if byKey[string(signing.Retired)] > 0 {
		for _, candidate := range Candidates(all, account, ring) {
			byProgress[candidate.Progress]++
			if candidate.State.pending() {
				c.queue(candidate.Secret.Account())
			}
		}
	}
	forgetGone(c.created, all)
	forgetGone(c.refused, all)
	forgetGone(c.slots, all)
	c.Metrics.survey(byKey, byProgress)
	c.loop.AddAfter(key{Work: surveying}, interval)
}

// slot returns how long a Secret has to wait for its successor. The worker does not wait meanwhile, so
// that each pair is finished before the next one begins.
func (c *Controller) slot(uid types.UID) time.Duration {
	now := c.Clock.Now()
	slot, ok := c.slots[uid]
	if !ok || now.Sub(slot) > slotLife {
		slot = now.Add(c.limiter.ReserveN(now, 1).DelayFrom(now))
		c.slots[uid] = slot
	}
	if left := slot.Sub(now); left > 0 {
		return left
	}
	delete(c.slots, uid)
	return 0
}

// isRetired reports whether the key with that ID is retired in the ring. A token of a key that the
// ring does not have is not re-issued: another replica may be ahead, or the key belongs to another
// cluster.
func isRetired(ring *signing.Ring, keyID string) bool { return ring.Role(keyID) == signing.Retired }

// keyState returns the state of a token's key in the ring, as a metric label.
func keyState(ring *signing.Ring, keyID string) string {
	if keyID == "" {
		return "none"
	}
	switch role := ring.Role(keyID); role {
	case "", signing.VerifyOnly: // the store does not have it
		return "unknown"
	default:
		return string(role)
	}
}
