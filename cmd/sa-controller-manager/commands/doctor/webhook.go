// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sa-controller-manager/admission/earlier"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/manifests"
)

// webhookCommand returns a command for a remedy.
func (c *cluster) webhookCommand(name string) string {
	return "sa-controller-manager webhook " + name + c.Kubeconfig
}

func (c *cluster) fixWebhook() string {
	return "see the log and /readyz/webhook-registration of the leader; " + c.lastResort()
}

func (c *cluster) lastResort() string {
	return "if Pods cannot wait: " + c.webhookCommand("unregister")
}

// fixFiles is fixWebhook if kube-apiserver calls the webhook by files, which only their host can remove. It
// needs no API, and so does not reach the policy for Pods.
func (c *cluster) fixFiles() string {
	return "see the log and /readyz/webhook-registration of the process on that host; if Pods cannot wait, there: " +
		"sa-controller-manager webhook unregister --" + options.StaticDirFlag + "=" + manifests.StaticDirectory +
		", then, or the policy " + podpolicy.Name + " refuses those without an account: " + c.webhookCommand("unregister")
}

// checkWebhook checks the registration and has a Pod created with dryRun. Without a registration
// the plugin of kube-apiserver may do the work, which is no problem.
func checkWebhook(ctx context.Context, c *cluster) (answer, error) {
	registered, err := registration.Inspect(ctx, c.Client)
	if err != nil {
		return answer{}, err
	}
	called, tried, err := tryPod(ctx, c, bothBound(registered))
	var early []finding
	var unlisted error
	if called || bothBound(registered) {
		early, unlisted = c.earlier(ctx, !bothBound(registered))
	}
	answer := answer{Findings: slices.Concat(badRegistration(c, registered), early, tried), Note: "not registered"}
	switch {
	case bothBound(registered):
		answer.Note = "kube-apiserver calls it"
	case called:
		answer.Note = "not registered in the API, kube-apiserver calls it by its files"
	}
	return answer, errors.Join(unlisted, err)
}

func bothBound(registered []registration.Inspected) bool {
	return !slices.ContainsFunc(registered, func(one registration.Inspected) bool { return !one.Active })
}

// badRegistration finds configurations that are neither bound nor absent. If neither exists, the
// webhook is not wanted. "webhook register" leaves empty ones where it comes from files; a Pod shows whether it does.
func badRegistration(c *cluster, registered []registration.Inspected) []finding {
	var findings []finding
	anyExists := slices.ContainsFunc(registered, func(one registration.Inspected) bool { return one.Exists })
	for _, one := range registered {
		switch {
		case one.Off:
			findings = append(findings, found("registration-off",
				fmt.Sprintf("the %s %s is switched off by the annotation %s=%s",
					one.Kind, registration.Name, registration.Annotation, registration.AnnotationOff),
				c.webhookCommand("register")+", once the reason for switching it off is gone"))
		case one.Entries > 0 && !one.Active:
			findings = append(findings,
				found("registration-unbound", fmt.Sprintf("the %s %s is not bound yet: kube-apiserver has not shown that it reaches the webhook",
					one.Kind, registration.Name), c.fixWebhook()))
		case !one.Exists && anyExists:
			findings = append(findings,
				found("registration-incomplete", fmt.Sprintf("there is no %s %s beside the other configuration", one.Kind, registration.Name),
					c.fixWebhook()))
		}
	}
	return findings
}

// earlier finds policies and webhooks of others that change Pods before our webhook does.
func (c *cluster) earlier(ctx context.Context, fromFiles bool) ([]finding, error) {
	names, err := earlier.Changers(ctx, c.Client, fromFiles)
	return about(names, "webhook-before-ours",
		"policies and webhooks that change new Pods before our webhook: they see Pods without account, token and pull secrets",
		"have a webhook sort after "+registration.Name+"; write a policy so that it needs none of these (docs/comparison.md)"), err
}

// tryPod creates a Pod with dryRun and checks what kube-apiserver returns. called reports whether our
// webhook has answered.
func tryPod(ctx context.Context, c *cluster, bound bool) (called bool, findings []finding, err error) {
	account, err := c.Client.CoreV1().ServiceAccounts(c.Namespace).Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		return false, nil, fmt.Errorf("read service account %s/default for a Pod with dryRun: %w", c.Namespace, err)
	}
	pod, called, err := registration.TryPod(ctx, c.Client, c.Namespace)
	if registration.Concerns(err) {
		fix := c.fixWebhook()
		if !bound {
			fix = c.fixFiles()
		}
		return false, []finding{found("pod-refused", fmt.Sprintf("a Pod in namespace %s is refused: %v", c.Namespace, err), fix)}, nil
	}
	if err != nil && strings.Contains(err.Error(), podpolicy.Name) {
		return false, badPod(c, registration.TrialPod(), account, bound, false), nil
	}
	if err != nil {
		return false, nil, fmt.Errorf("create a Pod in namespace %s with dryRun: %w", c.Namespace, err)
	}
	return called, badPod(c, pod, account, bound, called), nil
}

// badPod checks the returned Pod by the rules of the plugin.
func badPod(c *cluster, pod *corev1.Pod, account *corev1.ServiceAccount, bound, called bool) []finding {
	if bound && !called {
		return []finding{found("webhook-not-called", "kube-apiserver admits Pods without calling the registered webhook, "+
			"or reaches another server at its address", c.fixWebhook())}
	}
	wantsToken := c.Plugin.MountServiceAccountToken && (c.Plugin.Mode == serviceaccount.Projected || c.Plugin.RequireAPIToken) &&
		ptr.Deref(account.AutomountServiceAccountToken, true)
	var lacking string
	switch {
	case pod.Spec.ServiceAccountName == "":
		lacking = "account"
	case wantsToken && !slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts,
		func(m corev1.VolumeMount) bool { return m.MountPath == serviceaccount.TokenPath }):
		lacking = "token"
	default:
		return nil
	}
	why := "neither the webhook nor the plugin ServiceAccount of kube-apiserver adds it"
	fix := "if it was unregistered: " + c.webhookCommand("register") + ", where it comes from files the same on each host with --" +
		options.StaticDirFlag + "=" + manifests.StaticDirectory + " instead; otherwise start sa-controller-manager with " +
		"--webhook-registration, or kube-apiserver without --disable-admission-plugins=ServiceAccount"
	if called {
		why = "kube-apiserver calls the webhook, which does not add it"
		fix = "start sa-controller-manager with its plugin ServiceAccount, and without mountServiceAccountToken: false in " +
			"--admission-control-config-file, or give this command that file too if it is meant"
	}
	return []finding{found("pod-without-"+lacking, "a new Pod gets no "+lacking+": "+why,
		fix)}
}
