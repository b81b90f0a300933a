// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
)

// referenceKey is an entry of an account's secrets list that may have to be removed.
type referenceKey struct {
	Secret  cache.ObjectName
	Account string
	// AccountUID is "" if the Secret did not have it.
	AccountUID types.UID
	// Observed: a watch has shown the deletion of the Secret, which had AccountUID. Otherwise the
	// Secret is only missing, and a user may have written the entry in advance.
	Observed bool
}

// errAccountBehind: the reference was written so recently that the cached account
// does not show it yet.
var errAccountBehind = fmt.Errorf("the cached account does not show its newest token reference yet: %w", reconcile.ErrStaleCache)

// syncReference removes the reference if the Secret is gone, or its name belongs to one of another account,
// and the entry still exists.
func (c *Controller) syncReference(ctx context.Context, key referenceKey) error {
	secret := c.secrets.Get(key.Secret)
	if secret != nil && secret.AccountName == key.Account {
		return nil // created again
	}
	name := cache.NewObjectName(key.Secret.Namespace, key.Account)
	account := meta.CachedAccount(c.accounts, name)
	if account == nil || (key.AccountUID != "" && key.AccountUID != account.UID) {
		return nil
	}
	if !tokensecrets.References(account, key.Secret.Name) {
		if made, ok := c.created.get(name, string(account.UID)); ok && made.secret == key.Secret.Name {
			return errAccountBehind
		}
		return nil
	}
	written := tokensecrets.WrittenReferences(account.ManagedFields).Has(key.Secret.Name)
	if !written && (!key.Observed || secret != nil) {
		return nil
	}
	// A user's entry may be for the next Secret of that name, perhaps of another type.
	if secret == nil && (!key.Observed || !written) {
		if live, err := tokensecrets.LiveSecret(ctx, c.Client, key.Secret); err != nil || live != nil {
			return err
		}
	}
	return c.dereference(ctx, account, key.Secret.Name)
}

// dereference removes one entry. A conflict is an error here, so that the key is retried: no later
// event would queue it.
func (c *Controller) dereference(ctx context.Context, account *corev1.ServiceAccount, secret string) error {
	patch, err := removeReference(account, secret)
	if err != nil {
		return err
	}
	err = c.patchAccount(ctx, account, patch)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove reference to token secret %q from service account %s/%s: %w", secret, account.Namespace, account.Name, err)
	}
	c.Metrics.dereferenced.Inc()
	klog.FromContext(ctx).V(2).Info("Removed token reference", "serviceAccount", klog.KObj(account), "secret", secret)
	c.Recorder.Normal(referenceTo(account), "TokenReferenceRemoved",
		fmt.Sprintf("removed the reference to token Secret %q, which is deleted", secret))
	return nil
}

// queueDanglingReferences queues the references to Secrets that were deleted while no leader
// watched. A secrets list also names Secrets of other types and some that are not created yet: only
// entries that token controllers alone have written are removed. The doctor command shows the rest
// (tokensecrets.UnattributedReferences).
func (c *Controller) queueDanglingReferences() {
	accounts, _ := c.accounts.List(labels.Everything()) // a lister in memory has no error
	for _, account := range accounts {
		for _, key := range c.dangling(account) {
			c.referenceLoop.Add(key)
		}
	}
}

// queueDangling queues the references of an account to Secrets that the cache lacks. The deletion
// of such a Secret may have been seen before the account showed the reference. More often the
// cache of Secrets is stale, so the keys wait until it has caught up.
func (c *Controller) queueDangling(account *corev1.ServiceAccount) {
	for _, key := range c.dangling(account) {
		c.referenceLoop.AddAfter(key, cacheSyncGrace)
	}
}

// dangling are the references that seem to have lost their Secret and that token controllers alone
// have written. kube-apiserver keeps managedFields of no account that was created without any
// field, as default accounts are: who wrote its references is not known.
func (c *Controller) dangling(account *corev1.ServiceAccount) []referenceKey {
	missing := c.missing(account, true)
	if len(missing) == 0 {
		return nil
	}
	written := tokensecrets.WrittenReferences(account.ManagedFields)
	return slices.DeleteFunc(missing, func(key referenceKey) bool { return !written.Has(key.Secret.Name) })
}

// missing are the references to Secrets that the cache of token Secrets lacks or, with others, has for another
// account. What can be no name of a Secret is left out: no request can be made of it.
func (c *Controller) missing(account *corev1.ServiceAccount, others bool) []referenceKey {
	var missing []referenceKey
	for _, ref := range account.Secrets {
		secret := cache.NewObjectName(account.Namespace, ref.Name)
		held := c.secrets.Get(secret)
		if (held == nil || others && held.AccountName != account.Name) && len(validation.IsDNS1123Subdomain(ref.Name)) == 0 {
			missing = append(missing, referenceKey{Secret: secret, Account: account.Name, AccountUID: account.UID})
		}
	}
	return missing
}

func referenceTo(account *corev1.ServiceAccount) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name, UID: account.UID,
	}
}
