// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/trial"
	"sa-controller-manager/internal/check"
)

var beforeOurs = check.Fact{
	Code: "webhook-before-ours", Message: "kube-apiserver calls MutatingWebhookConfigurations for new Pods before " + registration.Name,
	Cost:   "they see Pods without account and token",
	Remedy: "rename them so that they sort after " + registration.Name + ", or set reinvocationPolicy: IfNeeded",
}

// checkWebhook checks the registration and has a Pod created with dryRun. Without a registration
// the plugin of kube-apiserver may do the work, which is no problem.
func (c *cluster) checkWebhook(ctx context.Context) (check.Result, error) {
	registered, err := c.registered(ctx)
	if err != nil {
		return check.Result{}, err
	}
	bound := registration.Bound(registered)
	early, unlisted := c.earlier(ctx, bound)
	// The Pod is tried even if these are not known.
	tried, err := c.trial(ctx)
	found := check.Result{Findings: slices.Concat(registration.Findings(registered), early, tried.findings), Note: "not registered"}
	switch {
	case bound:
		found.Note = "kube-apiserver calls it"
	case tried.called:
		found.Note = "not registered in the API, kube-apiserver calls it by its files"
	}
	return found, errors.Join(unlisted, err)
}

// earlier finds other webhooks that kube-apiserver calls for Pods before ours, in the order of the names of their
// configurations. With the plugin of kube-apiserver, account and token would be there.
func (c *cluster) earlier(ctx context.Context, bound bool) ([]check.Finding, error) {
	if !bound {
		return nil, nil
	}
	all, err := c.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list MutatingWebhookConfigurations: %w", err)
	}
	var names []string
	for i := range all.Items {
		if other := &all.Items[i]; other.Name < registration.Name && slices.ContainsFunc(other.Webhooks, changesPods) {
			names = append(names, other.Name)
		}
	}
	return beforeOurs.Found().About(names), nil
}

func changesPods(webhook admissionregistrationv1.MutatingWebhook) bool {
	if webhook.ReinvocationPolicy != nil && *webhook.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy {
		return false // kube-apiserver calls it again after ours
	}
	has := func(list []string, value string) bool {
		return slices.Contains(list, value) || slices.Contains(list, "*")
	}
	return slices.ContainsFunc(webhook.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		create := slices.Contains(rule.Operations, admissionregistrationv1.Create) ||
			slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
		return create && has(rule.APIGroups, "") && (has(rule.Resources, "pods") || slices.Contains(rule.Resources, "*/*"))
	})
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
			one.called, one.findings, err = trial.Run(ctx, c.Client, c.Namespace, registration.Bound(registered), c.Plugin)
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
