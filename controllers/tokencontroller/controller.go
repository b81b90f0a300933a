// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokencontroller reconciles Secrets of type kubernetes.io/service-account-token, which hold
// legacy tokens.
//
// It fills those that name a live ServiceAccount, deletes those whose account is
// gone, and removes references to deleted ones from the account. With Auto it also
// gives accounts one token Secret of their own (Kubernetes <= 1.23). It is the home of the rule which
// accounts get none: getsOwn in plan.go decides it.
//
// Three queues have three kinds of key. An account key queues the account's Secrets and, with
// Auto, ensures that it has its Secret. A secret key fills or deletes one Secret. A reference
// key removes from an account's secrets list what names deleted Secrets. Every sync decides from the cache, by a
// pure plan function, and then writes at most once, with UID and resourceVersion of what it has
// read as preconditions. After a conflict the watch brings the newer version, which queues the
// key again.
//
// A token is issued only for a live account whose UID fits, into a live Secret of
// the right type that names it. A token that is there is never overwritten, unless its key was revoked. No Secret is deleted
// before kube-apiserver was asked for its account.
package tokencontroller

import (
	"cmp"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// Upstream calls both of its queues serviceaccount_tokens_service
// (pkg/controller/serviceaccount/tokens_controller.go), which merges their series.
const (
	accountQueue   = "serviceaccount_tokens_service"
	secretQueue    = "serviceaccount_tokens_secret"
	referenceQueue = "serviceaccount_tokens_reference"
)

// Config is what a Controller needs. Clock and NewSuffix may be nil.
type Config struct {
	Client    kubernetes.Interface
	Metadata  metadata.Interface
	Informers *informers.Informers
	Issuer    *tokens.Issuer
	Keys      *signing.Keyring
	RootCA    *rootca.Source
	Recorder  *events.Recorder
	Metrics   *Metrics
	// RootCAMetrics are those of the root CA publisher.
	RootCAMetrics *rootca.Metrics
	Loops         *reconcile.Metrics

	// Auto gives every account one signed, referenced token Secret, except those in the namespaces of
	// AutoExcluded.
	Auto         bool
	AutoExcluded sets.Set[string]
	// OrphanGrace is the grace period of a Secret that has no account, no UID annotation and no
	// token, before it is deleted.
	OrphanGrace time.Duration
	// Workers is the number of workers of each loop.
	Workers int

	Clock clock.WithTicker
	// NewSuffix makes the random end of an auto-created Secret's name.
	NewSuffix func() string
}

// Controller is the Token controller. Build it with New before the informers are started.
type Controller struct {
	Config

	accounts        corev1listers.ServiceAccountLister
	secrets         tokensecrets.Lister
	accountInformer cache.SharedIndexInformer
	secretInformer  cache.SharedIndexInformer

	accountLoop   *reconcile.Runner[cache.ObjectName]
	secretLoop    *reconcile.Runner[cache.ObjectName]
	referenceLoop *reconcile.Runner[cache.ObjectName]

	written writeExpectations
	waiting byVersion[time.Time]         // since when Secrets wait for their account
	created byVersion[createExpectation] // of accounts, whose versions are their UIDs

	// observed are the deletions of Secrets that a watch has shown, until the references are removed.
	observed deletions
	// gone are the names that the secrets list of one version of an account has and that kube-apiserver has no Secret of.
	gone byVersion[sets.Set[string]]
	// lists paces the lists of the Secrets of a namespace, and undone the Secrets that accounts, by UID, are given.
	lists, undone *reconcile.Damping[string]
	// deleted are the UIDs of accounts that a watch has shown being deleted and the versions of that, as many as fit.
	deleted *lru.Cache
}

// New builds a controller that does not run yet.
func New(config Config) *Controller {
	config.Clock = cmp.Or[clock.WithTicker](config.Clock, clock.RealClock{})
	if config.NewSuffix == nil {
		config.NewSuffix = tokensecrets.NewSuffix
	}
	c := &Controller{Config: config, deleted: lru.New(deletedAccounts)}
	c.lists = reconcile.NewDamping[string](listPeriod, listPeriod, config.Clock)
	c.undone = reconcile.NewDamping[string](undonePeriod, undonePeriod, config.Clock)
	c.accounts, c.accountInformer = config.Informers.Accounts()
	c.secrets, c.secretInformer = config.Informers.TokenSecrets()
	c.accountLoop = newLoop(config, accountQueue, c.syncAccount)
	c.secretLoop = newLoop(config, secretQueue, c.syncSecret)
	c.referenceLoop = newLoop(config, referenceQueue, c.syncReferences)
	config.RootCA.Register(corev1.ResourceSecrets, c.replaceCA)
	config.RootCA.Changed.Subscribe(func(*rootca.Bundle) { c.queueAllSecrets() })
	config.Keys.Changed.Subscribe(c.ringChanged)
	return c
}

func newLoop[K comparable](config Config, name string, sync func(context.Context, K) error) *reconcile.Runner[K] {
	return reconcile.New(reconcile.Config[K]{Name: name, Workers: config.Workers, Sync: sync, Metrics: config.Loops, Clock: config.Clock})
}

// Run works until ctx ends and returns when no sync is under way any more. The
// informers must be synced. Registering the handlers replays the whole cache, so that
// every account and every Secret that needs a sync has one at the start. It may be called
// again once it has returned.
func (c *Controller) Run(ctx context.Context) error {
	c.written.reset()
	c.waiting.reset()
	c.created.reset()
	c.gone.reset()
	c.secretLoop.Open() // for a root CA that changes after the replay
	return reconcile.WithHandlers(ctx, func() {
		var loops sync.WaitGroup
		loops.Go(func() { c.accountLoop.Run(ctx) })
		loops.Go(func() { c.secretLoop.Run(ctx) })
		loops.Go(func() { c.referenceLoop.Run(ctx) })
		loops.Wait()
	}, reconcile.Handled{What: "serviceaccounts", Informer: c.accountInformer, Handler: reconcile.OnChanges{
		ResourceEventHandler: c.accountHandler(), Due: c.accountDue,
	}},
		reconcile.Handled{What: "token secrets", Informer: c.secretInformer, Handler: reconcile.OnChanges{
			ResourceEventHandler: c.secretHandler(), Due: c.secretDue,
		}})
}

// accountDue reports whether the sync of an account may have more to do than to queue its Secrets. It runs on the goroutine of
// the informer's handler, so it reads only a few references of a list that may be long.
func (c *Controller) accountDue(obj any) bool {
	account := obj.(*corev1.ServiceAccount)
	if len(account.Secrets) > fewReferences {
		return true
	}
	satisfied := !c.getsOwn(account)
	for _, ref := range account.Secrets {
		secret := c.secrets.Get(cache.NewObjectName(account.Namespace, ref.Name))
		if ours := secret != nil && secret.AccountName == account.Name; ours {
			satisfied = satisfied || secret.Serves(account)
		} else if len(account.ManagedFields) > 0 { // a token controller may have written it
			return true
		}
	}
	return !satisfied
}

// secretDue reports whether the sync of a Secret does anything.
func (c *Controller) secretDue(obj any) bool {
	secret := obj.(*tokensecrets.TokenSecret)
	account := meta.CachedAccount(c.accounts, secret.Account())
	ca, _ := c.RootCA.Current()
	return !secret.BelongsTo(account) || planSecret(secret, account, ca, c.Keys.Keys()) != secretPlan{}
}

// ringChanged has the tokens of revoked keys replaced.
func (c *Controller) ringChanged(*signing.Ring) { c.queueAllSecrets() }

// queueAllSecrets is called on every replica when the root CA has changed. Run looks at all Secrets
// at its start.
func (c *Controller) queueAllSecrets() {
	for _, secret := range c.secrets.All() {
		if c.secretDue(secret) {
			c.secretLoop.AddIfRunning(secret.ObjectName())
		}
	}
}

func (c *Controller) accountHandler() cache.ResourceEventHandler {
	handler := reconcile.OnEveryName(c.accountLoop.Add)
	queue := handler.DeleteFunc
	handler.DeleteFunc = func(obj any) {
		reconcile.OnDelete(func(obj any) {
			if account, ok := obj.(*corev1.ServiceAccount); ok {
				c.deleted.Add(account.UID, account.ResourceVersion)
			}
		})(obj)
		queue(obj)
	}
	return handler
}

func (c *Controller) secretHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { c.queueSecret(obj.(*tokensecrets.TokenSecret)) },
		UpdateFunc: func(old, obj any) {
			c.countSecondController(old.(*tokensecrets.TokenSecret), obj.(*tokensecrets.TokenSecret))
			c.queueSecret(obj.(*tokensecrets.TokenSecret))
			c.queueAccountOf(old.(*tokensecrets.TokenSecret))
		},
		DeleteFunc: reconcile.OnDelete(func(obj any) {
			if secret, ok := obj.(*tokensecrets.TokenSecret); ok {
				c.queueSecret(secret)
				c.observed.add(secret)
				c.referenceLoop.Add(secret.Account())
			}
		}),
	}
}

func (c *Controller) queueSecret(secret *tokensecrets.TokenSecret) {
	c.secretLoop.Add(secret.ObjectName())
	c.queueAccountOf(secret)
}

// queueAccountOf queues the account, which may have lost its own token Secret. It is a no-op
// without Auto.
func (c *Controller) queueAccountOf(secret *tokensecrets.TokenSecret) {
	if c.Auto && secret.AccountName != "" {
		c.accountLoop.Add(secret.Account())
	}
}
