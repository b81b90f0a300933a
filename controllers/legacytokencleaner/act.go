// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/tokensecrets"
)

// mark labels the very version of the Secret that was decided on, and returns the final decision. A
// Secret that has changed since waits for the next run.
func (c *Controller) mark(ctx context.Context, o observed) (decision, error) {
	secret, today := o.secret, c.run.horizon.today()
	logger := klog.FromContext(ctx).WithValues("secret", klog.KObj(secret), "serviceAccount",
		klog.KRef(secret.Namespace, secret.AccountName),
		"lastUsed", lastUse(secret))
	if c.DryRun {
		logger.Info("Would mark legacy token invalid (dry run)")
		c.recordMarked(o)
		return mark, nil
	}
	patched, err := tokensecrets.Patch(ctx, c.Client, secret, tokensecrets.Change{
		Labels: map[string]*string{tokensecrets.InvalidSinceLabel: new(today)},
	})
	if err != nil {
		return "", fmt.Errorf("mark token secret %s invalid: %w", secret.ObjectName(), err)
	}
	if patched == nil {
		return keepChanged, nil
	}
	logger.Info("Marked legacy token invalid", "invalidSince", today)
	c.Metrics.marked.Inc()
	c.recordMarked(o)
	return mark, nil
}

// remove reads Secret and account live, decides again, and deletes the Secret if that is still the
// decision.
func (c *Controller) remove(ctx context.Context, cached *tokensecrets.TokenSecret, mounted sets.Set[string]) (decision, error) {
	live, err := tokensecrets.ReadLive(ctx, c.Client, cached)
	if err != nil {
		return "", err
	}
	if live.Secret == nil {
		return keepChanged, nil
	}
	secret, account := tokensecrets.Observe(live.Secret), live.Account
	o := c.observe(secret, account, mounted)
	again := c.run.horizon.plan(o)
	if again == remove {
		again, err = c.confirmSuccessor(ctx, o)
	}
	if err != nil {
		return "", err
	}
	if again != remove {
		if again == mark {
			return keepChanged, nil // the mark was removed, and a full period begins again
		}
		return again, nil
	}
	invalid := fmt.Sprintf("the token of ServiceAccount %q has been invalid since %s (last use: %s)",
		secret.AccountName, secret.Labels[tokensecrets.InvalidSinceLabel], lastUse(secret))
	if c.DryRun {
		klog.FromContext(ctx).Info("Would delete legacy token (dry run)", "secret", klog.KObj(secret), "why", invalid)
		c.recordWouldRemove(secret, invalid)
		return remove, nil
	}
	deleted, err := tokensecrets.Delete(ctx, c.Client, c.Recorder, secret, reasonRemoved, invalid)
	if err != nil {
		return "", err
	}
	if !deleted {
		return keepChanged, nil
	}
	c.Metrics.removed.Inc()
	return remove, nil
}

// confirmSuccessor reads the successor of the Secret live, if it has one: it may be gone or marked
// by now.
func (c *Controller) confirmSuccessor(ctx context.Context, o observed) (decision, error) {
	if o.successor == nil {
		return remove, nil
	}
	live, err := tokensecrets.LiveSecret(ctx, c.Client, o.successor.ObjectName())
	if err != nil {
		return "", err
	}
	if live == nil || c.Replacements(o.account, []*tokensecrets.TokenSecret{tokensecrets.Observe(live)})(o.secret) == nil {
		return keepChanged, nil
	}
	return remove, nil
}
