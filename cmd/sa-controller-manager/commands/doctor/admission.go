// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"slices"

	"sa-controller-manager/admission/earlier"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/trial"
	"sa-controller-manager/internal/check"
)

var beforeOurs = check.Fact{
	Code: "webhook-before-ours", Message: "policies and webhooks change new Pods before our webhook",
	Cost:   "they see Pods without account, token and pull secrets",
	Remedy: "have a webhook sort after " + registration.Name + "; write a policy so that it needs none of these (docs/comparison.md)",
}

// checkWebhook checks the registration and has a Pod created with dryRun. Without a registration
// the plugin of kube-apiserver may do the work, which is no problem.
func (c *cluster) checkWebhook(ctx context.Context) (check.Result, error) {
	registered, err := c.registered(ctx)
	if err != nil {
		return check.Result{}, err
	}
	bound := trial.Bound(registered)
	tried, err := c.trial(ctx)
	var early []string
	if bound || tried.called {
		var unlisted error
		early, unlisted = earlier.Changers(ctx, c.Client, !bound)
		err = errors.Join(err, unlisted)
	}
	found := check.Result{
		Findings: slices.Concat(trial.Findings(registered), beforeOurs.Found().About(early), tried.findings), Note: "not registered",
	}
	switch {
	case bound:
		found.Note = "kube-apiserver calls it"
	case tried.called:
		found.Note = "not registered in the API; the kube-apiserver that was asked calls it by its files"
	}
	return found, err
}

// tried is what kube-apiserver made of a Pod with dryRun. called reports whether our webhook has answered.
type tried struct {
	called   bool
	findings []check.Finding
}

func (c *cluster) trial(ctx context.Context) (tried, error) {
	return c.facts.trial.get(ctx, func(ctx context.Context) (one tried, err error) {
		registered, err := c.registered(ctx)
		if err == nil {
			one.called, one.findings, err = trial.Run(ctx, c.Client, c.Namespace, trial.Bound(registered), true)
		}
		return one, err
	})
}

// checkPolicy finds what is wrong with the policies for Pods, where kube-apiserver needs the webhook.
func (c *cluster) checkPolicy(ctx context.Context) (check.Result, error) {
	if installed, err := c.installed(ctx); err != nil || !installed {
		return check.Skip(notInstalled), err
	}
	findings, err := podpolicy.Findings(ctx, c.Client, c.Plugin.Ordinary())
	if err != nil || len(findings) == 0 {
		return check.Result{}, err
	}
	if tried, err := c.trial(ctx); err == nil && !tried.called && len(tried.findings) == 0 {
		return check.Skip("kube-apiserver has its ServiceAccount plugin"), nil // as after a handback
	}
	return check.Result{Findings: findings}, nil
}
