// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/tokens"
)

// syncSecret fills the Secret if its account exists and treats it as an orphan if not.
func (c *Controller) syncSecret(ctx context.Context, name cache.ObjectName) error {
	secret := c.secrets.Get(name)
	if secret == nil {
		c.written.forget(name)
		c.waiting.forget(name)
		return nil
	}
	if secret.Terminating() {
		return nil
	}
	if left := c.written.left(secret, c.Clock.Now()); left > 0 {
		c.secretLoop.AddAfter(name, left)
		return nil
	}
	if secret.AccountName == "" {
		c.Recorder.Warn(secret.Reference(), reasonBadAccount,
			"the annotation "+corev1.ServiceAccountNameKey+" is not a valid name of a ServiceAccount; the Secret is left alone")
		return nil
	}
	account := meta.CachedAccount(c.accounts, secret.Account())
	if !secret.BelongsTo(account) {
		return c.syncOrphan(ctx, secret)
	}
	c.waiting.forget(name)
	return c.fill(ctx, secret, account)
}

// fill writes what the Secret lacks. If that is only another root CA, the rollout of the root CA writes it.
func (c *Controller) fill(ctx context.Context, secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount) error {
	ca, err := c.RootCA.Current()
	plan := planSecret(secret, account, ca, c.Keys.Keys())
	if plan.warning.reason != "" {
		c.Recorder.Warn(secret.Reference(), plan.warning.reason, plan.warning.note)
	}
	if !plan.writes() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("populate token secret %s: %w", secret.ObjectName(), err)
	}
	if plan.onlyReplacesCA(secret) {
		c.RootCA.QueueWrite(corev1.ResourceSecrets, secret.ObjectName())
		return nil
	}
	if plan.ca != nil && !plan.token {
		if delay := c.RootCA.Delay(corev1.ResourceSecrets, secret.ObjectName()); delay > 0 {
			c.secretLoop.AddAfter(secret.ObjectName(), delay) // another client removes it again and again
			return nil
		}
	}
	return c.write(ctx, secret, account, plan)
}

// replaceCA is called by the rate-limited rollout for a Secret that only needs the new ca.crt.
func (c *Controller) replaceCA(ctx context.Context, name cache.ObjectName) error {
	secret := c.secrets.Get(name)
	if secret == nil || c.written.left(secret, c.Clock.Now()) > 0 {
		return nil
	}
	account := meta.CachedAccount(c.accounts, secret.Account())
	if !secret.BelongsTo(account) {
		return nil
	}
	ca, _ := c.RootCA.Current()
	if plan := planSecret(secret, account, ca, c.Keys.Keys()); plan.onlyReplacesCA(secret) {
		return c.write(ctx, secret, account, plan)
	}
	return nil
}

// write sends one request, and none before it.
func (c *Controller) write(ctx context.Context, secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount, plan secretPlan) error {
	name := secret.ObjectName()
	data, err := c.data(ctx, secret.Name, account, plan)
	if err != nil {
		return fmt.Errorf("populate token secret %s: %w", name, err)
	}
	patched, err := tokensecrets.Patch(ctx, c.Client, secret, tokensecrets.Change{
		// Both annotations are written whenever anything is: together they say whose token this is.
		Annotations: map[string]*string{
			corev1.ServiceAccountNameKey: &account.Name,
			corev1.ServiceAccountUIDKey:  new(string(account.UID)),
		},
		Data: data,
	})
	if err == nil && patched != nil && plan.token && patched.Token == nil {
		err = meta.ErrUnchanged // but for the rest
	}
	if err != nil {
		return c.refused(secret.Reference(), fmt.Errorf("populate token secret %s: %w", name, err))
	}
	logger := klog.FromContext(ctx)
	if patched == nil {
		return fmt.Errorf("populate token secret %s: %w", name, errStale)
	}
	c.written.wrote(secret, c.Clock.Now())
	if c.secrets.Get(name) == nil {
		c.written.forget(name) // another loop has seen its deletion meanwhile
	}
	logger.V(2).Info("Filled token secret",
		"secret", klog.KObj(secret), "serviceAccount", klog.KObj(account), "token", plan.token, "ca", plan.ca != nil)
	if plan.token {
		c.Metrics.issued.WithLabelValues(issuedFilled).Inc()
	}
	if plan.ca == nil {
		return nil
	}
	if c.RootCA.Wrote(corev1.ResourceSecrets, name) {
		c.Recorder.Warn(secret.Reference(), rootca.ReasonReplaced, rootca.NoteReplaced)
	}
	if plan.ca.NeedsUpdate(patched.HasCA, patched.CAHash) { // the handler counts what is replaced later
		c.RootCAMetrics.Replaced(corev1.ResourceSecrets)
	}
	return nil
}

// data returns the part of a token Secret's data that plan asks for.
func (c *Controller) data(ctx context.Context, secret string, account *corev1.ServiceAccount, plan secretPlan) (map[string][]byte, error) {
	data := map[string][]byte{}
	if plan.token {
		token, err := c.Issuer.Legacy(ctx, tokens.Account{
			Namespace: account.Namespace, Name: account.Name, UID: string(account.UID),
		}, secret)
		if err != nil {
			return nil, err
		}
		data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	if plan.ca != nil {
		data[corev1.ServiceAccountRootCAKey] = plan.ca.PEM()
	}
	if plan.namespace {
		data[corev1.ServiceAccountNamespaceKey] = []byte(account.Namespace)
	}
	return data, nil
}

// Expectations: writes of this process that its watches have not shown yet. They may be lost at any
// time, at the cost of a request that kube-apiserver refuses, and are useless once another
// process has led.

// byVersion keeps one T for one version of each object. It is safe for concurrent use; its zero
// value is empty.
type byVersion[T any] struct {
	mu  sync.Mutex
	all map[cache.ObjectName]versioned[T]
}

type versioned[T any] struct {
	version string
	value   T
}

func (b *byVersion[T]) set(name cache.ObjectName, version string, value T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[cache.ObjectName]versioned[T]{}
	}
	b.all[name] = versioned[T]{version, value}
}

// get returns the value for this version and drops that of another one.
func (b *byVersion[T]) get(name cache.ObjectName, version string) (value T, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.all[name]
	if ok && found.version != version {
		delete(b.all, name)
		return value, false
	}
	return found.value, ok
}

func (b *byVersion[T]) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.all)
}

func (b *byVersion[T]) forget(name cache.ObjectName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, name)
}

// writeExpectations are the versions of Secrets that this process has overwritten. Such a version
// is stale and causes no second write for uncachedRecheck: etcd may have been put back to it.
type writeExpectations struct{ byVersion[time.Time] }

func (e *writeExpectations) wrote(secret *tokensecrets.TokenSecret, now time.Time) {
	e.set(secret.ObjectName(), version(secret), now)
}

// left returns how long this version of the Secret causes no second write, 0 if it may.
func (e *writeExpectations) left(secret *tokensecrets.TokenSecret, now time.Time) time.Duration {
	at, _ := e.get(secret.ObjectName(), version(secret)) // or the zero time, which is long ago
	return max(0, uncachedRecheck-now.Sub(at))
}

func version(secret *tokensecrets.TokenSecret) string {
	return string(secret.UID) + "/" + secret.ResourceVersion
}

// createExpectation is the Secret that was requested, created and referenced for an account. It is
// kept until the caches show the Secret and the reference.
type createExpectation struct {
	secret              string
	created, referenced bool
	// at is when it was referenced.
	at time.Time
	// unused is the Secret as it was created, until a request to reference it may have succeeded.
	unused *tokensecrets.TokenSecret
}
