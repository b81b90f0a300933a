// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
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

// cacheSyncGrace is how long the caches may take to show what was just written before the
// account is synced without waiting for them any longer.
const cacheSyncGrace = 10 * time.Second

// syncAccount has every Secret that names the account looked at and, with Auto,
// sees to it that the account has one of its own.
func (c *Controller) syncAccount(ctx context.Context, name cache.ObjectName) error {
	secrets := c.secrets.OfAccount(name)
	for _, secret := range secrets {
		c.secretLoop.Add(secret.ObjectName())
	}
	account := meta.CachedAccount(c.accounts, name)
	if account != nil {
		c.queueDangling(account)
	}
	if account == nil || !c.Auto {
		c.created.forget(name)
		return nil
	}
	plan := planAccount(account, secrets)
	if made, ok := c.created.get(name, string(account.UID)); ok && !plan.satisfied {
		return c.awaitCreated(ctx, account, made)
	}
	c.created.forget(name)
	return c.ensureOwn(ctx, account, plan)
}

// awaitCreated finishes what an earlier sync began and then gives the caches time
// to show it, so that their lag does not make a second Secret.
func (c *Controller) awaitCreated(ctx context.Context, account *corev1.ServiceAccount, made createExpectation) error {
	if !made.referenced {
		if stale, err := c.secretsStale(ctx, account); err != nil || stale {
			return err
		}
		return c.reference(ctx, account, made.secret)
	}
	name := cache.MetaObjectToName(account)
	if left := cacheSyncGrace - c.Clock.Since(made.at); left > 0 {
		c.accountLoop.AddAfter(name, left)
		return nil
	}
	c.created.forget(name)
	c.accountLoop.Add(name)
	return nil
}

func (c *Controller) ensureOwn(ctx context.Context, account *corev1.ServiceAccount, plan accountPlan) error {
	if plan.satisfied {
		return c.prune(ctx, account, plan.surplus)
	}
	if stale, err := c.secretsStale(ctx, account); err != nil || stale {
		return err
	}
	if plan.adopt != nil {
		// What is surplus goes once the cache shows which one is referenced.
		return c.reference(ctx, account, plan.adopt.Name)
	}
	return c.createOwn(ctx, account)
}

// secretsStale reports whether the account references a token Secret that is there and that
// the cache lacks: another leader made it, and the cache of Secrets is stale. It is asked of
// each version of the account before a reference is added to that version: with a second
// one both Secrets would stay.
func (c *Controller) secretsStale(ctx context.Context, account *corev1.ServiceAccount) (bool, error) {
	for _, key := range c.dangling(account) {
		live, err := tokensecrets.LiveSecret(ctx, c.Client, key.Secret)
		if err != nil {
			return false, err
		}
		if live != nil && live.Type == corev1.SecretTypeServiceAccountToken {
			c.accountLoop.AddAfter(cache.MetaObjectToName(account), requeueAfter)
			return true, nil
		}
	}
	return false, nil
}

// createOwn creates a complete token Secret with one request and references it
// with a second.
func (c *Controller) createOwn(ctx context.Context, account *corev1.ServiceAccount) error {
	secret, err := c.ownSecret(ctx, account)
	if err != nil {
		return fmt.Errorf("create token secret for service account %s/%s: %w", account.Namespace, account.Name, err)
	}
	_, err = c.Client.CoreV1().Secrets(account.Namespace).Create(ctx, secret, metav1.CreateOptions{FieldManager: meta.FieldManager})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err) {
		return nil // a namespace that is going needs none
	}
	if err != nil {
		return fmt.Errorf("create token secret for service account %s/%s: %w", account.Namespace, account.Name, err)
	}
	c.Metrics.issued.WithLabelValues(issuedAuto).Inc()
	klog.FromContext(ctx).V(2).Info("Created token secret", "secret", klog.KObj(secret), "serviceAccount", klog.KObj(account))
	c.created.set(cache.MetaObjectToName(account), string(account.UID), createExpectation{secret: secret.Name, at: c.Clock.Now()})
	return c.reference(ctx, account, secret.Name)
}

func (c *Controller) ownSecret(ctx context.Context, account *corev1.ServiceAccount) (*corev1.Secret, error) {
	name := tokensecrets.NewName(account.Name, c.NewSuffix())
	plan := secretPlan{token: true, ca: c.RootCA.Current(), namespace: true}
	data, err := c.data(ctx, name, account, plan)
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: account.Namespace,
			Name:      name,
			Labels:    map[string]string{tokensecrets.AutoCreatedLabel: "true"},
			Annotations: map[string]string{
				corev1.ServiceAccountNameKey: account.Name,
				corev1.ServiceAccountUIDKey:  string(account.UID),
			},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: data,
	}, nil
}

// reference adds the Secret to the account's list. If the account has changed, its
// newer version comes by the watch and the next sync goes on from there.
func (c *Controller) reference(ctx context.Context, account *corev1.ServiceAccount, secret string) error {
	patch, err := addReference(account, secret)
	if err != nil {
		return err
	}
	err = c.patchAccount(ctx, account, patch)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		// As with a Secret, a conflict is no promise of a watch event.
		c.accountLoop.AddAfter(cache.MetaObjectToName(account), requeueAfter)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reference token secret %q from service account %s/%s: %w", secret, account.Namespace, account.Name, err)
	}
	c.created.set(cache.MetaObjectToName(account), string(account.UID), createExpectation{secret: secret, referenced: true, at: c.Clock.Now()})
	return nil
}

func (c *Controller) patchAccount(ctx context.Context, account *corev1.ServiceAccount, patch ReferencePatch) error {
	_, err := c.Client.CoreV1().ServiceAccounts(account.Namespace).Patch(ctx, account.Name, patch.Type, patch.Body,
		metav1.PatchOptions{FieldManager: meta.FieldManager})
	return err
}

// prune deletes what a crash between creating and referencing has left behind.
// The apiserver is asked first, because the cache may lag behind a reference.
func (c *Controller) prune(ctx context.Context, account *corev1.ServiceAccount, surplus []*tokensecrets.TokenSecret) error {
	if len(surplus) == 0 {
		return nil
	}
	live, err := meta.LiveAccount(ctx, c.Client, cache.MetaObjectToName(account))
	if err != nil {
		return err
	}
	if live == nil || live.UID != account.UID {
		return nil // orphans now, which the secret keys see to
	}
	for _, secret := range surplus {
		if tokensecrets.References(live, secret.Name) || c.written.stale(secret) {
			continue
		}
		deleted, err := c.delete(ctx, secret, deletedSurplus)
		if err != nil {
			return err
		}
		if !deleted {
			c.accountLoop.AddAfter(cache.MetaObjectToName(account), requeueAfter) // for want of a watch event, as above
		}
	}
	return nil
}
