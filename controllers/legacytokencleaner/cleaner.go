// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package legacytokencleaner removes unused legacy tokens: it marks their Secrets invalid, so that
// kube-apiserver refuses the token, and deletes them after another period (KEP-2799; upstream:
// pkg/controller/serviceaccount/legacy_serviceaccount_token_cleaner.go). KCM's tokencleaner is
// another controller, for bootstrap tokens.
//
// A run begins at the start and every 24 hours. It surveys the cached token Secrets and queues
// each namespace that has candidates. The sync of a namespace lists its Pods, page by page, and
// then decides and acts on one candidate after the other. One worker on the leader does all of it.
//
// No state outlives the process. The Secrets have the results of a run, as dates: the next
// run, however soon, finds nothing left to do.
//
// Only Secrets that an account references are marked or deleted, and those that a re-issue has
// replaced (Config.Replacements). A user's Secret stays unless .secrets lists it: then nothing shows who
// created it, and upstream deletes it, too. The successor of a Secret stays as long as that one
// exists, or another would be created. Only this package deletes replaced Secrets.
//
// Every write has UID and resourceVersion as preconditions, and Secret and account are read live
// before a deletion.
package legacytokencleaner

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
)

const (
	queueName = "legacy_service_account_token_cleaner"

	// interval is upstream's, which no flag changes either.
	interval = 24 * time.Hour

	// wholeCluster is the key that begins a run. All others are namespaces.
	wholeCluster = metav1.NamespaceAll
)

// Config is what a Controller needs. Clock and Replacements may be nil.
type Config struct {
	Client    kubernetes.Interface
	Informers *informers.Informers
	Recorder  *events.Recorder
	Metrics   *Metrics
	Loops     *reconcile.Metrics

	// Period is how long a token must be unused before it is marked, and how long
	// it must have been marked before it is deleted. It is greater than zero.
	Period time.Duration
	// DryRun only records Events and metrics.
	DryRun bool
	// Auto: every account keeps one token Secret (tokensecrets.Own).
	Auto bool
	// Replacements returns the Replacement among the Secrets of an account. It is nil without re-issue.
	Replacements func(*corev1.ServiceAccount, []*tokensecrets.TokenSecret) tokensecrets.Replacement

	Clock clock.WithTicker
}

// Controller is the cleaner. Build it with New before the informers are started.
type Controller struct {
	Config

	accounts corev1listers.ServiceAccountLister
	secrets  tokensecrets.Lister
	loop     *reconcile.Runner[string]

	// run is the present run. Only the one worker uses it.
	run run
}

// New builds a controller that does not run yet.
func New(config Config) *Controller {
	config.Clock = cmp.Or[clock.WithTicker](config.Clock, clock.RealClock{})
	if config.Replacements == nil {
		config.Replacements = func(*corev1.ServiceAccount, []*tokensecrets.TokenSecret) tokensecrets.Replacement {
			return tokensecrets.NotReplaced
		}
	}
	c := &Controller{Config: config}
	c.accounts, _ = config.Informers.Accounts()
	c.secrets, _ = config.Informers.TokenSecrets()
	c.loop = reconcile.New(reconcile.Config[string]{Name: queueName, Workers: 1, Sync: c.sync, Metrics: config.Loops, Clock: config.Clock})
	return c
}

// Run works until ctx ends and returns when no sync is under way any more. The
// informers must be synced.
func (c *Controller) Run(ctx context.Context) error {
	defer c.Metrics.end()
	c.loop.Add(wholeCluster)
	c.loop.Run(ctx)
	return nil
}

func (c *Controller) sync(ctx context.Context, key string) error {
	if key == wholeCluster {
		return c.begin(ctx)
	}
	return c.clean(ctx, key)
}

// begin begins a run, which is idle if unused tokens cannot be told from used ones.
func (c *Controller) begin(ctx context.Context) error {
	tracking, err := c.tracking(ctx)
	if err != nil {
		return err
	}
	next := run{horizon: newHorizon(c.Clock.Now(), c.Period), candidates: map[string][]cache.ObjectName{}}
	idle := next.horizon.check(tracking)
	differs, err := c.clockDiffers(ctx)
	if err != nil {
		return err
	}
	if differs {
		idle = clockWrong
	}
	c.run = next
	c.Metrics.begin(idle)
	if idle == working {
		c.survey(ctx)
	} else {
		klog.FromContext(ctx).Info("Not cleaning up legacy tokens", "reason", idle, "next", next.horizon.now.Add(interval))
	}
	for namespace := range c.run.candidates {
		c.loop.Add(namespace)
	}
	c.finish(ctx)
	c.loop.AddAfter(wholeCluster, interval)
	return nil
}

// survey decides on every token Secret without reading Pods. Secrets that would be marked or
// deleted become candidates.
func (c *Controller) survey(ctx context.Context) {
	for _, secret := range c.secrets.All() {
		o := c.observe(secret, meta.CachedAccount(c.accounts, secret.Account()), nil)
		outcome := c.run.horizon.plan(o)
		if outcome.acts() {
			c.run.candidates[secret.Namespace] = append(c.run.candidates[secret.Namespace], secret.ObjectName())
			continue
		}
		c.recordDecision(ctx, secret, outcome)
	}
}

// clean decides and acts on the candidates of one namespace. Failed candidates stay for the retry.
func (c *Controller) clean(ctx context.Context, namespace string) error {
	candidates := c.run.candidates[namespace]
	if len(candidates) == 0 {
		return nil // of an earlier run
	}
	mounted, err := c.mountedSecrets(ctx, namespace)
	if err != nil {
		return err
	}
	var failed []cache.ObjectName
	var errs []error
	for _, name := range candidates {
		if err := c.cleanOne(ctx, name, mounted); err != nil {
			failed, errs = append(failed, name), append(errs, err)
		}
	}
	c.run.candidates[namespace] = failed
	if len(failed) == 0 {
		delete(c.run.candidates, namespace)
	}
	c.finish(ctx)
	return errors.Join(errs...)
}

func (c *Controller) cleanOne(ctx context.Context, name cache.ObjectName, mounted sets.Set[string]) error {
	secret := c.secrets.Get(name)
	if secret == nil {
		return nil // deleted meanwhile
	}
	o := c.observe(secret, meta.CachedAccount(c.accounts, secret.Account()), mounted)
	outcome := c.run.horizon.plan(o)
	var err error
	switch outcome {
	case mark:
		outcome, err = c.mark(ctx, o)
	case remove:
		outcome, err = c.remove(ctx, secret, mounted)
	default: // it is kept
	}
	if err != nil {
		return err
	}
	c.recordDecision(ctx, secret, outcome)
	return nil
}

// recordDecision counts and logs the decision on a Secret.
func (c *Controller) recordDecision(ctx context.Context, secret *tokensecrets.TokenSecret, outcome decision) {
	c.Metrics.decided(outcome)
	klog.FromContext(ctx).V(5).Info("Decided on token secret", "secret", klog.KObj(secret), "decision", outcome)
	if outcome == keepTried {
		c.recordTried(secret)
	}
}

// finish ends the run if no candidates are left.
func (c *Controller) finish(ctx context.Context) {
	if len(c.run.candidates) > 0 {
		return
	}
	c.Metrics.finish(c.Clock.Now())
	klog.FromContext(ctx).V(2).Info("Finished a run of the legacy token cleaner", "began", c.run.horizon.now)
}

// observe collects the input of plan.
func (c *Controller) observe(secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount, mounted sets.Set[string]) observed {
	o := observed{secret: secret, account: account, mounted: mounted.Has(secret.Name)}
	if account == nil {
		return o
	}
	secrets := c.secrets.OfAccount(cache.MetaObjectToName(account))
	replacement := c.Replacements(account, secrets)
	o.successor = replacement(secret)
	o.predecessor = slices.ContainsFunc(secrets, secret.Replaces)
	if c.Auto {
		own := tokensecrets.Own(account, secrets, replacement)
		o.own = own != nil && own.UID == secret.UID
	}
	return o
}
