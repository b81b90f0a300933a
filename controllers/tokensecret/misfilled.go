// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
)

// mayBeMisfilled tells whether a Secret that bears another UID than the account that lives
// may be a user's for that very account, filled for the one before it by a token controller
// whose cache was late.
func mayBeMisfilled(secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount) bool {
	return mayBeEmptied(secret) && younger(secret, account)
}

func mayBeEmptied(secret *tokensecrets.TokenSecret) bool {
	return !secret.Immutable && !secret.MadeByTokenController()
}

// younger tells whether the Secret was certainly made when the account was there already. An
// older one may have belonged to the former account, and whoever holds its token must not get
// another.
//
// Times are whole seconds. Within one, it has to have been filled when the account was
// there: then nobody ever held a token of it that was worth anything. Its last write, taken
// for that of the UID, came after all that is known of the account. In kube-apiserver's one
// etcd that is what the versions of the two say, although nothing promises it: where they
// are counted apart, what is at stake is a Secret as old as its account, to the second.
func younger(secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount) bool {
	if asOld(secret, account) {
		return lastWritten(secret, account) > 0
	}
	return account.CreationTimestamp.Before(&secret.CreationTimestamp)
}

// asOld tells whether both were made in one second, within which times tell nothing.
func asOld(secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount) bool {
	return secret.CreationTimestamp.Equal(&account.CreationTimestamp)
}

// lastWritten is above 0 if the Secret was written after the account, below if before, and 0
// if it cannot be told.
func lastWritten(secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount) int {
	order, err := resourceversion.CompareResourceVersion(secret.ResourceVersion, account.ResourceVersion)
	if err != nil {
		return 0
	}
	return order
}

// thereWhenFilled asks kube-apiserver for what was there at the version of a Secret of the
// account's second, because whoever changed the account since has raised the account's own.
// History that is compacted says nothing.
func (c *Controller) thereWhenFilled(ctx context.Context, secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount) (bool, error) {
	if !asOld(secret, account) || lastWritten(secret, account) >= 0 {
		return false, nil
	}
	then, err := c.Client.CoreV1().ServiceAccounts(account.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector:        fields.OneTermEqualSelector(metav1.ObjectNameField, account.Name).String(),
		ResourceVersion:      secret.ResourceVersion,
		ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if apierrors.IsResourceExpired(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up service account %s/%s when secret %q was filled: %w", account.Namespace, account.Name, secret.Name, err)
	}
	return slices.ContainsFunc(then.Items, func(found corev1.ServiceAccount) bool { return found.UID == account.UID }), nil
}

// awaitsEmptying tells whether one of the account's Secrets that is as old as it may be
// misfilled, and nobody has had the time to see to it; also one that was filled and for whom
// the cache does not show yet. If the account's version stays as it is until then, nobody
// depends on history, which may be compacted. The time begins when this process first sees
// that: the account's own age is told by the clock of kube-apiserver, of which ours may be
// ahead.
func (c *Controller) awaitsEmptying(account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret) bool {
	name := cache.MetaObjectToName(account)
	if !slices.ContainsFunc(secrets, func(secret *tokensecrets.TokenSecret) bool {
		return asOld(secret, account) && (c.written.outdated(secret) || !secret.BelongsTo(account) && mayBeMisfilled(secret, account))
	}) {
		c.emptying.forget(name)
		return false
	}
	now := c.Clock.Now()
	since, _ := c.emptying.since(name, string(account.UID), now)
	return now.Sub(since) < cacheLag
}

// misfilled makes sure of it. The cache does not know who has written the annotation.
func (c *Controller) misfilled(ctx context.Context, secret *tokensecrets.TokenSecret, live *corev1.ServiceAccount) (bool, error) {
	if live == nil || !mayBeEmptied(secret) {
		return false, nil
	}
	account := live
	if cached := meta.CachedAccount(c.accounts, cache.MetaObjectToName(live)); cached != nil && cached.UID == live.UID {
		account = cached // an earlier version of it, or the same
	}
	if !younger(secret, account) {
		if there, err := c.thereWhenFilled(ctx, secret, account); err != nil || !there {
			return false, err
		}
	}
	now, err := c.liveSecret(ctx, nameOf(secret))
	if err != nil || now == nil {
		return false, err // a delete will find that it is gone
	}
	return tokensecrets.FilledByTokenController(now), nil
}

// unfill takes UID and token away again, so that the Secret is as its user made it, and is
// filled for the account that lives. The token that goes was of use to nobody: its account
// was dead when it was signed.
func (c *Controller) unfill(ctx context.Context, secret *tokensecrets.TokenSecret) error {
	patch, err := unfillPatch(secret)
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: meta.FieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		c.lookAgain(secret)
		return nil
	}
	if err != nil {
		return fmt.Errorf("empty token secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	c.written.wrote(secret)
	klog.FromContext(ctx).V(2).Info("Emptied token secret that was filled for an earlier account", "secret", klog.KObj(secret), "serviceAccountUID", secret.AccountUID)
	c.Recorder.Normal(secret.Reference(), "MisfilledTokenSecretEmptied", "Fill", fmt.Sprintf(
		"emptied, to be filled again: it was filled for an earlier ServiceAccount %q with UID %q, and is younger than the one that lives",
		secret.AccountName, secret.AccountUID))
	return nil
}

func unfillPatch(secret *tokensecrets.TokenSecret) ([]byte, error) {
	patch := secretPatch{Metadata: meta.PatchOf(secret), Data: map[string][]byte{corev1.ServiceAccountTokenKey: nil}}
	patch.Metadata.Annotations = map[string]*string{corev1.ServiceAccountUIDKey: nil}
	return patch.encode()
}
