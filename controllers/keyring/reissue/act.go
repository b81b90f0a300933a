// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/tokencontroller"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/tokens"
)

// act does one step that was planned from o.
func (c *Controller) act(ctx context.Context, step step, o observed) error {
	var err error
	switch step.action {
	case create:
		err = c.create(ctx, step.Secret, o)
	case reference:
		delete(c.created, step.Secret.UID)
		err = c.reference(ctx, step.Secret, step.Successor)
	case discard:
		return c.discard(ctx, step.Secret, o)
	case warn:
		c.warnBlocked(step.Candidate)
	}
	if err != nil {
		c.Metrics.reissued("failed")
		return fmt.Errorf("re-issue token secret %s/%s: %w", step.Secret.Namespace, step.Secret.Name, err)
	}
	return nil
}

// create creates the empty Secret that replaces cached. The token controller fills it.
func (c *Controller) create(ctx context.Context, cached *tokensecrets.TokenSecret, o observed) error {
	made := c.created[cached.UID]
	if slices.ContainsFunc(o.secrets, func(secret *tokensecrets.TokenSecret) bool { return secret.Name == made.name }) {
		delete(c.created, cached.UID) // the cache shows it, and yet another one is due
		made = expectation{}
	}
	if !made.at.IsZero() {
		if left := cacheSyncGrace - c.Clock.Since(made.at); left > 0 {
			c.loop.AddAfter(keyOf(cached), left)
			return nil
		}
		// Another name is taken only if the Secret is gone or not ours, not if the cache is stale.
		live, err := tokensecrets.LiveSecret(ctx, c.Client, cache.NewObjectName(cached.Namespace, made.name))
		if err != nil {
			return err
		}
		if live != nil && live.Annotations[tokensecrets.ReplacesAnnotation] == predecessorOf(cached).String() {
			c.created[cached.UID] = expectation{name: made.name, at: c.Clock.Now()}
			c.loop.AddAfter(keyOf(cached), cacheSyncGrace)
			return nil
		}
		delete(c.created, cached.UID)
		made = expectation{}
	}
	live, err := c.confirm(ctx, cached, o)
	if err != nil || live == nil {
		return err
	}
	if made.name == "" {
		made.name = tokensecrets.NewName(live.Account.Name, c.NewSuffix())
		c.created[cached.UID] = made
	}
	successor := successorOf(live, made.name)
	private := isPrivate(live.Account, tokensecrets.Observe(live.Secret))
	_, err = c.Client.CoreV1().Secrets(cached.Namespace).Create(ctx, successor, metav1.CreateOptions{FieldManager: meta.FieldManager})
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		delete(c.created, cached.UID)
		return nil // a terminating namespace needs none
	case apierrors.IsAlreadyExists(err):
		// Either an earlier try has succeeded, which the cache will show, or the name is
		// taken: if the cache shows nothing in time, another one is chosen.
	case err != nil:
		return fmt.Errorf("create secret %s: %w", made.name, meta.SecretError(err))
	}
	c.created[cached.UID] = expectation{name: made.name, at: c.Clock.Now()}
	c.loop.AddAfter(keyOf(cached), cacheSyncGrace)
	klog.FromContext(ctx).V(2).Info("Created token secret to replace one", "secret", klog.KObj(successor), "replaces", klog.KObj(cached))
	if private && err == nil { // no list of the account names it, so no later step says it
		c.Metrics.reissued("done")
		c.recordReplaced(cached, successor.Name)
	}
	return nil
}

// successorOf keeps what a person has set: the labels, the annotation that keeps a Secret from the cleaner,
// and the owners, with which it is deleted. The cleaner leaves alone what no list of the account names, and
// so it does the successor.
func successorOf(live *tokensecrets.Live, name string) *corev1.Secret {
	secret := tokensecrets.Observe(live.Secret)
	successor := tokensecrets.New(live.Account, name)
	successor.Annotations[tokensecrets.ReplacesAnnotation] = predecessorOf(secret).String()
	if isPrivate(live.Account, secret) {
		delete(successor.Labels, tokensecrets.AutoCreatedLabel)
	}
	for label, value := range live.Secret.Labels {
		switch label {
		case tokensecrets.AutoCreatedLabel, tokensecrets.LastUsedLabel, tokensecrets.InvalidSinceLabel:
		default:
			successor.Labels[label] = value
		}
	}
	if keep, ok := live.Secret.Annotations[tokensecrets.KeepAnnotation]; ok {
		successor.Annotations[tokensecrets.KeepAnnotation] = keep
	}
	for _, owner := range live.Secret.OwnerReferences {
		owner.BlockOwnerDeletion = nil // it may need a permission on the owner, and nothing waits for a Secret
		successor.OwnerReferences = append(successor.OwnerReferences, owner)
	}
	return successor
}

// reference puts the new Secret first in the account's list, where clients look for a token. The old
// reference stays, because Pods still use that Secret.
func (c *Controller) reference(ctx context.Context, secret, successor *tokensecrets.TokenSecret) error {
	account, err := meta.LiveAccount(ctx, c.Client, secret.Account())
	if err != nil || account == nil || account.UID != secret.AccountUID || account.DeletionTimestamp != nil {
		return err
	}
	err = tokencontroller.ReferenceFirst(ctx, c.Client, account, successor.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reference secret %s first: %w", successor.Name, err)
	}
	c.Metrics.reissued("done")
	klog.FromContext(ctx).V(2).Info("Re-issued token secret",
		"secret", klog.KObj(secret), "successor", klog.KObj(successor), "serviceAccount", klog.KObj(account))
	c.recordReplaced(secret, successor.Name)
	return nil
}

// confirm reads Secret and account live and decides again. It returns nil if the Secret needs no successor
// any more, or has to wait for one. The token does not leave this function.
func (c *Controller) confirm(ctx context.Context, cached *tokensecrets.TokenSecret, o observed) (*tokensecrets.Live, error) {
	if c.refused[cached.UID] == refusalOf(cached, o.ring) {
		return nil, nil
	}
	if left := c.slot(cached.UID); left > 0 {
		c.loop.AddAfter(keyOf(cached), left)
		return nil, nil
	}
	live, err := tokensecrets.ReadLive(ctx, c.Client, cached)
	if err != nil || live.Secret == nil {
		return nil, err
	}
	secret := tokensecrets.Observe(live.Secret)
	if o.again(live.Account, secret).candidate(secret).State != Due {
		return nil, nil // the watch is about to show it
	}
	if _, err := tokens.VerifyLegacy(string(live.Secret.Data[corev1.ServiceAccountTokenKey]), c.Ring); err != nil {
		c.refused[secret.UID] = refusalOf(secret, o.ring)
		c.Metrics.reissued("refused")
		c.recordUnverified(secret, err)
		return nil, nil
	}
	live.Secret.Data = nil
	return &live, nil
}

// discard deletes the new Secret of an interrupted re-issue after kube-apiserver has confirmed that
// nothing references it and that it was never used.
func (c *Controller) discard(ctx context.Context, cached *tokensecrets.TokenSecret, o observed) error {
	live, err := tokensecrets.ReadLive(ctx, c.Client, cached)
	if err != nil || live.Secret == nil || live.Account == nil {
		return err
	}
	secret := tokensecrets.Observe(live.Secret)
	if !o.again(live.Account, secret).isLeftover(secret, c.Auto, c.Clock.Now()) {
		return nil
	}
	_, err = tokensecrets.Delete(ctx, c.Client, c.Recorder, secret, reasonDiscarded, fmt.Sprintf(
		"it is an unused replacement of Secret %q: not referenced, never used", secret.Predecessor.Name))
	return err
}

func keyOf(secret *tokensecrets.TokenSecret) key { return key{reissuing, secret.Account()} }
