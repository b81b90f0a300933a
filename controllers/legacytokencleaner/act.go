// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/tokensecret"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
)

// mark labels the very version of the Secret that was decided on, and says what has
// become of the decision. One that has changed since is for the next round.
func (c *Controller) mark(ctx context.Context, seen observed) (decision, error) {
	secret, when := seen.secret, c.round.of(seen)
	logger := klog.FromContext(ctx).WithValues("secret", klog.KObj(secret), "serviceAccount", klog.KRef(secret.Namespace, secret.AccountName),
		"lastUsed", lastUse(secret))
	if c.DryRun {
		logger.Info("Would mark legacy token invalid, but for the dry run")
		c.tellMarked(seen)
		return mark, nil
	}
	metadata := meta.PatchOf(secret)
	metadata.Labels = map[string]*string{tokensecrets.InvalidSinceLabel: new(when.today())}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return "", err
	}
	_, err = c.Client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: meta.FieldManager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return keepChanged, nil
	}
	if err != nil {
		return "", fmt.Errorf("mark token secret %s/%s invalid: %w", secret.Namespace, secret.Name, err)
	}
	logger.Info("Marked legacy token invalid", "invalidSince", when.today())
	c.Metrics.marked.Inc()
	c.tellMarked(seen)
	return mark, nil
}

// remove deletes a Secret that is still to be deleted when it and its account are
// read live.
func (c *Controller) remove(ctx context.Context, cached *tokensecrets.TokenSecret, mounted names) (decision, error) {
	secret, account, err := c.live(ctx, cached)
	if err != nil {
		return "", err
	}
	if secret == nil || secret.UID != cached.UID {
		return keepChanged, nil
	}
	seen := c.observe(secret, account, mounted)
	again := c.round.plan(seen)
	if again == remove {
		again, err = c.confirmSuccessor(ctx, seen)
	}
	if err != nil {
		return "", err
	}
	if again != remove {
		if again == mark {
			return keepChanged, nil // somebody took the mark off, and is owed a full period
		}
		return again, nil
	}
	logger := klog.FromContext(ctx).WithValues("secret", klog.KObj(secret), "serviceAccount", klog.KObj(account),
		"lastUsed", lastUse(secret), "invalidSince", secret.Labels[tokensecrets.InvalidSinceLabel])
	if c.DryRun {
		logger.Info("Would delete legacy token, but for the dry run")
		c.tellRemoved(secret)
		return remove, nil
	}
	err = c.Client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: meta.Preconditions(secret)})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return keepChanged, nil
	}
	if err != nil {
		return "", fmt.Errorf("delete token secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	logger.Info("Deleted legacy token")
	c.Metrics.removed.Inc()
	c.tellRemoved(secret)
	return remove, nil
}

// confirmSuccessor asks the apiserver itself for the Secret that has replaced the one
// that is to be deleted, if there is one: it may be gone, or be marked by now.
func (c *Controller) confirmSuccessor(ctx context.Context, seen observed) (decision, error) {
	if seen.successor == nil {
		return remove, nil
	}
	successor, err := c.Client.CoreV1().Secrets(seen.secret.Namespace).Get(ctx, seen.successor.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return keepChanged, nil
	}
	if err != nil {
		return "", fmt.Errorf("look up token secret %s/%s: %w", seen.secret.Namespace, seen.successor.Name, err)
	}
	if tokensecret.Successor(seen.account, []*tokensecrets.TokenSecret{tokensecrets.Observe(successor)}, seen.secret) == nil {
		return keepChanged, nil
	}
	return remove, nil
}

// live asks the apiserver itself for the Secret and its account. Either is nil if
// it does not exist. The token goes no further than this function.
func (c *Controller) live(ctx context.Context, cached *tokensecrets.TokenSecret) (*tokensecrets.TokenSecret, *corev1.ServiceAccount, error) {
	secret, err := c.Client.CoreV1().Secrets(cached.Namespace).Get(ctx, cached.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("look up token secret %s/%s: %w", cached.Namespace, cached.Name, err)
	}
	account, err := meta.LiveAccount(ctx, c.Client, cached.Account())
	if err != nil {
		return nil, nil, err
	}
	return tokensecrets.Observe(secret), account, nil
}
