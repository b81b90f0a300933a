// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
)

// cacheSyncGrace is how long a sync of the account waits for the caches to show the last write.
const cacheSyncGrace = 10 * time.Second

// undonePeriod is how often an account is given a token Secret while another client deletes each.
const undonePeriod = 10 * time.Second

// syncAccount queues the Secrets that name the account and need a sync, and ensures that the account has one of its
// own if planAccount says so.
func (c *Controller) syncAccount(ctx context.Context, name cache.ObjectName) error {
	secrets := c.secrets.OfAccount(name)
	for _, secret := range secrets {
		if c.secretDue(secret) {
			c.secretLoop.Add(secret.ObjectName())
		}
	}
	account := meta.CachedAccount(c.accounts, name)
	if account == nil {
		c.created.forget(name)
		c.gone.forget(name)
		return nil
	}
	if c.mayDangle(account) {
		// Mostly the cache of Secrets is stale: it has time to catch up.
		c.referenceLoop.AddAfter(name, cacheSyncGrace)
	}
	if !c.getsOwn(account) {
		return c.deleteUnused(ctx, account)
	}
	satisfied, adopt := planAccount(account, secrets)
	if satisfied {
		return c.deleteUnused(ctx, account)
	}
	return c.ensureOwn(ctx, account, adopt)
}

// deleteUnused deletes the Secret that this process has created for an account which needed none: the previous leader
// had already created one, which our stale caches did not show. The Secret still has its creation resourceVersion:
// kube-apiserver, which records the first use of a token, has never seen this one.
func (c *Controller) deleteUnused(ctx context.Context, account *corev1.ServiceAccount) error {
	name := cache.MetaObjectToName(account)
	if made, _ := c.created.get(name, string(account.UID)); made.unused != nil && !tokensecrets.References(account, made.secret) {
		if _, err := tokensecrets.Delete(ctx, c.Client, c.Recorder, made.unused, reasonUnused, fmt.Sprintf(
			"ServiceAccount %q does not need it, and kube-apiserver was never asked with its token", account.Name)); err != nil {
			return err
		}
	}
	c.created.forget(name)
	c.gone.forget(name)
	return nil
}

// ensureOwn references adopt, or a new Secret if there is none to adopt. It finishes what an
// earlier sync has begun, and then gives the caches time to show it. What another client undoes is done again after a while.
func (c *Controller) ensureOwn(ctx context.Context, account *corev1.ServiceAccount, adopt *tokensecrets.TokenSecret) error {
	name := cache.MetaObjectToName(account)
	made, _ := c.created.get(name, string(account.UID))
	if made.referenced {
		if left := cacheSyncGrace - c.Clock.Since(made.at); left > 0 {
			c.accountLoop.AddAfter(name, left)
			return nil
		}
		c.created.forget(name)
		c.accountLoop.Add(name)
		return nil
	}
	if left := c.undone.Delay(string(account.UID)); left > 0 {
		c.accountLoop.AddAfter(name, left)
		return nil
	}
	left, err := c.secretsStale(ctx, account)
	if err != nil {
		return err
	}
	if left > 0 {
		c.accountLoop.AddAfter(name, left)
		return nil
	}
	switch {
	case made.created:
		return c.reference(ctx, account, made.secret)
	case adopt != nil:
		return c.reference(ctx, account, adopt.Name)
	}
	return c.createOwn(ctx, account, made.secret)
}

// secretsStale returns how long to wait if the account may reference a token Secret that is there and that
// the cache lacks: another leader made it, and the cache of Secrets is stale. It is asked of
// each version of the account before a reference is added to that version: nothing would take
// a second one away, nor the token that it leads to. Names that no token controller chooses are not asked for: a user may list any number.
// Who wrote a reference is not known of an account without managedFields.
func (c *Controller) secretsStale(ctx context.Context, account *corev1.ServiceAccount) (time.Duration, error) {
	written := tokensecrets.WrittenReferences(account.ManagedFields)
	var names []string
	for name, held := range c.missing(account) {
		if held == nil && (written.Has(name) || tokensecrets.IsName(account.Name, name)) {
			names = append(names, name)
		}
	}
	there, left, err := c.liveTypes(ctx, account, names)
	for _, kind := range there {
		if kind == corev1.SecretTypeServiceAccountToken || kind == "" {
			left = cacheSyncGrace
		}
	}
	return left, err
}

// createOwn creates a complete token Secret with one request and references it with a second.
// tried is the name in an earlier request that failed or whose answer was lost: with the same name
// both requests create one Secret. The later one has no token: a quota that refuses it again and again costs no signature, and the
// Secret is filled as those of users are.
func (c *Controller) createOwn(ctx context.Context, account *corev1.ServiceAccount, tried string) error {
	name := cmp.Or(tried, tokensecrets.NewName(account.Name, c.NewSuffix()))
	secret, err := c.ownSecret(ctx, account, name, tried == "")
	if err != nil {
		return fmt.Errorf("create token secret for service account %s/%s: %w", account.Namespace, account.Name, err)
	}
	created, err := c.Client.CoreV1().Secrets(account.Namespace).Create(ctx, secret, metav1.CreateOptions{FieldManager: meta.FieldManager})
	expected := createExpectation{secret: name, created: true}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		return nil // a terminating namespace needs none
	case apierrors.IsAlreadyExists(err) && tried != "":
		// It was created, and the answer was lost.
	case err != nil:
		if !apierrors.IsAlreadyExists(err) {
			c.created.set(cache.MetaObjectToName(account), string(account.UID), createExpectation{secret: name})
		}
		return c.refused(referenceTo(account), fmt.Errorf("create token secret for service account %s/%s: %w",
			account.Namespace, account.Name, meta.SecretError(err, secret.Data)))
	default:
		expected.unused = tokensecrets.Observe(created)
	}
	if tried == "" {
		c.Metrics.issued.WithLabelValues(issuedAuto).Inc()
	}
	klog.FromContext(ctx).V(2).Info("Created token secret", "secret", klog.KObj(secret), "serviceAccount", klog.KObj(account))
	c.created.set(cache.MetaObjectToName(account), string(account.UID), expected)
	return c.reference(ctx, account, name)
}

func (c *Controller) ownSecret(ctx context.Context, account *corev1.ServiceAccount, name string, token bool) (*corev1.Secret, error) {
	ca, err := c.RootCA.Current()
	if err != nil {
		return nil, err
	}
	secret := tokensecrets.New(account, name)
	secret.Data, err = c.data(ctx, name, account, secretPlan{token: token, ca: ca, namespace: true})
	return secret, err
}

// reference adds the Secret to the account's list. If the account has changed, the watch brings the
// newer version, and the next sync continues from there.
func (c *Controller) reference(ctx context.Context, account *corev1.ServiceAccount, secret string) error {
	err := patchReferences(ctx, c.Client, account, append([]corev1.ObjectReference{{Name: secret}}, account.Secrets...))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("reference token secret %q from service account %s/%s: %w", secret, account.Namespace, account.Name, errStale)
	}
	if err != nil {
		if made, ok := c.created.get(cache.MetaObjectToName(account), string(account.UID)); ok {
			made.unused = nil // the answer may be lost, and the reference written
			c.created.set(cache.MetaObjectToName(account), string(account.UID), made)
		}
		return c.refused(referenceTo(account),
			fmt.Errorf("reference token secret %q from service account %s/%s: %w", secret, account.Namespace, account.Name, err))
	}
	if c.undone.Wrote(string(account.UID)) {
		c.Metrics.undone.Inc()
		c.Recorder.Warn(referenceTo(account), reasonUndone, "another client deletes the token Secrets that this program creates for the "+
			"account, or their references, again and again: it gets one in ten seconds")
	}
	c.created.set(cache.MetaObjectToName(account), string(account.UID),
		createExpectation{secret: secret, created: true, referenced: true, at: c.Clock.Now()})
	return nil
}

// refused records an Event if a policy, webhook or quota has refused a write, and returns err.
func (c *Controller) refused(regarding *corev1.ObjectReference, err error) error {
	if meta.Refused(err) {
		c.Recorder.Warn(regarding, reasonRefused, err.Error())
	}
	return err
}
