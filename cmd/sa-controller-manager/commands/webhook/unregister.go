// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
)

// consequence is what unregister leads to.
const consequence = "Until it is on again, Pods that the policy " + podpolicy.CompletionName + " does not complete are admitted without " +
	"account, token, image pull secrets and limit on Secrets, unless the plugin ServiceAccount of kube-apiserver is on"

// unregister switches the webhook off and lets Pods without an account in.
func unregister(ctx context.Context, client kubernetes.Interface) error {
	if err := registration.Unregister(ctx, client); err != nil {
		return err
	}
	return podpolicy.SetAction(ctx, client, admissionregistrationv1.Warn)
}

// register undoes unregister.
func register(ctx context.Context, client kubernetes.Interface) error {
	if err := registration.Register(ctx, client); err != nil {
		return err
	}
	return podpolicy.SetAction(ctx, client, admissionregistrationv1.Deny)
}

// policiesAreOurs returns an error for a policy for Pods that is there and wrong. Users may do without them.
func policiesAreOurs(ctx context.Context, client kubernetes.Interface) error {
	for _, policy := range []podpolicy.Policy{podpolicy.Refusal, podpolicy.Completion} {
		if exists, problem, err := policy.Problem(ctx, client); err != nil || exists && problem != "" {
			return cmp.Or(err, fmt.Errorf("the webhook may be registered again, but %s", problem))
		}
	}
	return nil
}

// checkPlugin returns an error unless the plugin ServiceAccount of kube-apiserver is on, or the webhook is
// off already. It creates a Pod of its own account with dryRun, for which the webhook is not called.
func checkPlugin(ctx context.Context, client kubernetes.Interface) error {
	registered, err := registration.Inspect(ctx, client)
	if err != nil || slices.ContainsFunc(registered, func(one registration.Inspected) bool { return one.Off }) {
		return err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask who is asking: %w", err)
	}
	namespace, name, err := serviceaccount.SplitUsername(review.Status.UserInfo.Username)
	if err != nil {
		return fmt.Errorf("--if-plugin-on is for the ServiceAccount of the manager: %w", err)
	}
	pod := registration.ProbePod("plugin") // which no policy of ours completes
	pod.Spec.ServiceAccountName, pod.Spec.AutomountServiceAccountToken = name, new(true)
	pod, err = client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("create a Pod in namespace %s with dryRun: %w", namespace, err)
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Projected != nil }) {
		return errors.New("nothing was changed: the plugin ServiceAccount of kube-apiserver is off, so that Pods would get no token. " +
			"Start each kube-apiserver without --disable-admission-plugins=ServiceAccount first. To switch the webhook off all the same: " +
			"sa-controller-manager webhook unregister --yes --kubeconfig=admin.conf")
	}
	return nil
}
