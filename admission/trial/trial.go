// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package trial looks at the webhook from the outside, as commands do. It judges what the API has, has kube-apiserver create
// a Pod with dryRun, and says what is wrong with the one that it returns: whether the webhook, the policies or the plugin of
// kube-apiserver gives a new Pod its account and token.
package trial

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/check"
)

var (
	refused = check.Fact{
		Code: "pod-refused", Message: "the webhook refuses a Pod of an ordinary account", Cost: "Pods cannot be created",
		Remedy: registration.FactUnreachable.Remedy,
	}
	notCalled = check.Fact{
		Code: "webhook-not-called", Message: "kube-apiserver admits Pods without calling the registered webhook, or reaches another " +
			"server at its address",
		Cost: registration.FactUnbound.Cost, Remedy: registration.FactUnbound.Remedy,
	}
	without = check.Fact{
		Code:    "pod-without-",
		Message: "a new Pod gets no {what}: neither the webhook nor the plugin ServiceAccount of kube-apiserver adds it",
		Cost:    "Pods cannot use the API",
		Remedy: "if the webhook was unregistered, " + registration.FactOff.Remedy + "; otherwise start sa-controller-manager with " +
			"--webhook-registration, or kube-apiserver without --disable-admission-plugins=ServiceAccount",
	}
	withoutByUs = check.Fact{
		Code: "pod-without-", Message: "a new Pod gets no {what}, although kube-apiserver calls the webhook",
		Cost:   without.Cost,
		Remedy: "look for a webhook or policy of others that changes Pods after ours and takes it away",
	}
)

// Run creates the Pod in namespace, for its account default. Called reports whether our webhook has answered, and bound
// whether the API binds it. With token it also looks for the token that the account asks for.
func Run(ctx context.Context, client kubernetes.Interface, namespace string, bound, token bool) (
	called bool, findings []check.Finding, err error,
) {
	pod, called, err := Pod(ctx, client, namespace)
	switch {
	case registration.Concerns(err):
		fact := registration.FactUnreachable
		if strings.Contains(err.Error(), "denied the request") {
			fact = refused
		}
		return false, []check.Finding{fact.Found().Because(err.Error())}, nil
	case err != nil && strings.Contains(err.Error(), podpolicy.Name):
		pod = registration.TrialPod() // as it was refused
	case err != nil:
		return false, nil, fmt.Errorf("create a Pod in namespace %s with dryRun: %w", namespace, err)
	case bound && !called:
		return false, []check.Finding{notCalled.Found()}, nil
	}
	if token {
		account, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return called, nil, fmt.Errorf("read service account %s/default of a Pod with dryRun: %w", namespace, err)
		}
		token = ptr.Deref(account.AutomountServiceAccountToken, true)
	}
	var what string
	switch {
	case pod.Spec.ServiceAccountName == "":
		what = "account"
	case token && !slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts,
		func(m corev1.VolumeMount) bool { return m.MountPath == serviceaccount.TokenPath }):
		what = "token"
	default:
		return called, nil, nil
	}
	fact := without
	if called {
		fact = withoutByUs
	}
	fact.Code += what
	return called, []check.Finding{fact.Found("{what}", what)}, nil
}

// Pod creates a probe Pod with dryRun. called reports whether the webhook has answered.
func Pod(ctx context.Context, client kubernetes.Interface, namespace string) (pod *corev1.Pod, called bool, err error) {
	id := rand.Text()
	pod, err = client.CoreV1().Pods(namespace).Create(ctx, registration.ProbePod(id),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return pod, err == nil && registration.Answered(pod, id), err
}

// Findings returns what is wrong with the configurations of the API. If neither exists, none is wanted there. "webhook
// register" leaves empty ones where the webhook comes from files; a Pod shows whether it does.
func Findings(found []registration.Inspected) (findings []check.Finding) {
	exist := slices.ContainsFunc(found, func(one registration.Inspected) bool { return one.Exists })
	add := func(fact check.Fact, why string, one registration.Inspected) {
		finding := fact.Found().Because(fmt.Sprintf(why, one.Kind, registration.Name))
		if i := slices.IndexFunc(findings, func(f check.Finding) bool { return f.Code == fact.Code }); i >= 0 {
			findings[i].Why += "; " + finding.Why
			return
		}
		findings = append(findings, finding)
	}
	for _, one := range found {
		switch {
		case one.Off:
			add(registration.FactOff, "the annotation "+registration.Annotation+"="+registration.AnnotationOff+" is on the %s %s", one)
		case one.Entries > 0 && !one.Active:
			add(registration.FactUnbound, "the %s %s has only what proves that kube-apiserver reaches it", one)
		case !one.Exists && exist:
			add(registration.FactUnbound, "there is no %s %s beside the other configuration", one)
		}
	}
	return findings
}

// Bound reports whether both configurations bind the webhook.
func Bound(found []registration.Inspected) bool {
	return len(found) > 0 && !slices.ContainsFunc(found, func(one registration.Inspected) bool { return !one.Active })
}
