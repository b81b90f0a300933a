// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/check"
)

var (
	beforeOurs = check.Fact{
		Code: "webhook-before-ours", Message: "kube-apiserver calls MutatingWebhookConfigurations for new Pods before " + registration.Name,
		Cost:   "they see Pods without account and token",
		Remedy: "rename them so that they sort after " + registration.Name + ", or set reinvocationPolicy: IfNeeded",
	}
	podRefused = check.Fact{
		Code: "pod-refused", Message: "the webhook refuses a Pod of an ordinary account", Cost: "Pods cannot be created",
		Remedy: registration.FactUnreachable.Remedy,
	}
	notCalled = check.Fact{
		Code: "webhook-not-called", Message: "kube-apiserver admits Pods without calling the registered webhook, or reaches another " +
			"server at its address",
		Cost: registration.FactUnbound.Cost, Remedy: registration.FactUnbound.Remedy,
	}
	podWithout = check.Fact{
		Code: "pod-without-", Message: "a new Pod gets no {what}: neither the webhook nor the plugin ServiceAccount of kube-apiserver adds it",
		Cost: "Pods cannot use the API",
		Remedy: "if the webhook was unregistered: " + registration.FactOff.Remedy + "; otherwise start sa-controller-manager with " +
			"--webhook-registration, or kube-apiserver without --disable-admission-plugins=ServiceAccount",
	}
	podWithoutByUs = check.Fact{
		Code: "pod-without-", Message: "a new Pod gets no {what}: kube-apiserver calls the webhook, which does not add it",
		Cost: "Pods cannot use the API",
		Remedy: "start sa-controller-manager with its plugin ServiceAccount, and without mountServiceAccountToken: false in " +
			"--admission-control-config-file, or give this command that file too if it is meant",
	}
)

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

// trial is what kube-apiserver made of a Pod with dryRun. called reports whether our webhook has answered.
type trial struct {
	called   bool
	findings []check.Finding
}

func (c *cluster) trial(ctx context.Context) (trial, error) { return c.facts.trial.get(ctx, c.tryPod) }

func (c *cluster) tryPod(ctx context.Context) (trial, error) {
	account, err := c.Client.CoreV1().ServiceAccounts(c.Namespace).Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		return trial{}, fmt.Errorf("read service account %s/default for a Pod with dryRun: %w", c.Namespace, err)
	}
	pod, called, err := registration.TryPod(ctx, c.Client, c.Namespace)
	switch {
	case registration.Concerns(err):
		fact := registration.FactUnreachable
		if strings.Contains(err.Error(), "denied the request") {
			fact = podRefused
		}
		return trial{findings: []check.Finding{fact.Found().Because(err.Error())}}, nil
	case err != nil && strings.Contains(err.Error(), podpolicy.Name):
		pod = registration.TrialPod()
	case err != nil:
		return trial{}, fmt.Errorf("create a Pod in namespace %s with dryRun: %w", c.Namespace, err)
	}
	if registered, err := c.registered(ctx); err == nil && registration.Bound(registered) && !called {
		return trial{findings: []check.Finding{notCalled.Found()}}, nil
	}
	return trial{called, c.badPod(pod, account, called)}, nil
}

// badPod checks the returned Pod by the rules of the plugin.
func (c *cluster) badPod(pod *corev1.Pod, account *corev1.ServiceAccount, called bool) []check.Finding {
	wantsToken := c.Plugin.MountServiceAccountToken && (c.Plugin.Mode == serviceaccount.Projected || c.Plugin.RequireAPIToken) &&
		ptr.Deref(account.AutomountServiceAccountToken, true)
	lacks := ""
	switch {
	case pod.Spec.ServiceAccountName == "":
		lacks = "account"
	case wantsToken && !slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts,
		func(m corev1.VolumeMount) bool { return m.MountPath == serviceaccount.TokenPath }):
		lacks = "token"
	default:
		return nil
	}
	fact := podWithout
	if called {
		fact = podWithoutByUs
	}
	finding := fact.Found("{what}", lacks)
	finding.Code += lacks
	return []check.Finding{finding}
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
