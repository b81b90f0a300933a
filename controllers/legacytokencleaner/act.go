// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

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
		c.recordMarked(seen)
		return mark, nil
	}
	metadata := meta.PatchOf(secret)
	metadata.Labels = map[string]*string{tokensecrets.InvalidSinceLabel: new(when.today())}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return "", err
	}
	patched, err := tokensecrets.Patch(ctx, c.Client, secret, patch)
	if err != nil {
		return "", fmt.Errorf("mark token secret %s invalid: %w", secret.ObjectName(), err)
	}
	if !patched {
		return keepChanged, nil
	}
	logger.Info("Marked legacy token invalid", "invalidSince", when.today())
	c.Metrics.marked.Inc()
	c.recordMarked(seen)
	return mark, nil
}

// remove deletes a Secret that is still to be deleted when it and its account are
// read live.
func (c *Controller) remove(ctx context.Context, cached *tokensecrets.TokenSecret, mounted sets.Set[string]) (decision, error) {
	live, err := tokensecrets.ReadLive(ctx, c.Client, cached)
	if err != nil {
		return "", err
	}
	if live.Secret == nil {
		return keepChanged, nil
	}
	secret, account := tokensecrets.Observe(live.Secret), live.Account
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
			return keepChanged, nil // the mark was taken off, and a full period begins again
		}
		return again, nil
	}
	logger := klog.FromContext(ctx).WithValues("secret", klog.KObj(secret), "serviceAccount", klog.KObj(account),
		"lastUsed", lastUse(secret), "invalidSince", secret.Labels[tokensecrets.InvalidSinceLabel])
	if c.DryRun {
		logger.Info("Would delete legacy token, but for the dry run")
		c.recordRemoved(secret)
		return remove, nil
	}
	deleted, err := tokensecrets.Delete(ctx, c.Client, secret)
	if err != nil {
		return "", err
	}
	if !deleted {
		return keepChanged, nil
	}
	logger.Info("Deleted legacy token")
	c.Metrics.removed.Inc()
	c.recordRemoved(secret)
	return remove, nil
}

// confirmSuccessor asks the apiserver itself for the Secret that has replaced the one
// that is to be deleted, if there is one: it may be gone, or be marked by now.
func (c *Controller) confirmSuccessor(ctx context.Context, seen observed) (decision, error) {
	if seen.successor == nil {
		return remove, nil
	}
	live, err := tokensecrets.LiveSecret(ctx, c.Client, seen.successor.ObjectName())
	if err != nil {
		return "", err
	}
	if live == nil || tokensecrets.PairUp(seen.account, []*tokensecrets.TokenSecret{tokensecrets.Observe(live)}, nil).Replacement(seen.secret) == nil {
		return keepChanged, nil
	}
	return remove, nil
}
