// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package earlier finds what others let kube-apiserver do to a new Pod before our webhook sees it. Nothing but commands asks.
package earlier

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/admission/registration"
)

// What goes wrong where others see a Pod before it has its account, token volume and pull secrets. With the
// plugin of kube-apiserver they see them.
const (
	harmAccount = "reads the account's name without has(), and so refuses Pods that name none"
	harmPulling = "sets imagePullSecrets, and so the account's own are left out"
	harmVolumes = "appends to a list that a Pod may not have yet, and so refuses it"
)

// Changers returns the policies and webhooks of others that change a new Pod before our webhook does, each with what may go
// wrong. Policies come before all webhooks of the API; a second call of the same one, with reinvocationPolicy IfNeeded, comes too
// late for all of this. fromFiles says that our webhook is in files, which come before those of the API.
func Changers(ctx context.Context, client kubernetes.Interface, fromFiles bool) (early []string, err error) {
	policies, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) { // before v1.36 there are none
		return nil, fmt.Errorf("list MutatingAdmissionPolicies: %w", err)
	}
	for i := range policies.Items {
		policy := &policies.Items[i]
		if strings.HasPrefix(policy.Name, "sa-controller-manager") || policy.Spec.MatchConstraints == nil {
			continue
		}
		matches := func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
			return createsPods(rule.RuleWithOperations)
		}
		if slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, matches) {
			early = append(early, "MutatingAdmissionPolicy "+policy.Name+harms(&policy.Spec))
		}
	}
	if fromFiles {
		return early, nil
	}
	webhooks, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list MutatingWebhookConfigurations: %w", err)
	}
	for i := range webhooks.Items {
		other := &webhooks.Items[i]
		changes := func(webhook admissionregistrationv1.MutatingWebhook) bool {
			return slices.ContainsFunc(webhook.Rules, createsPods)
		}
		if other.Name < registration.Name && slices.ContainsFunc(other.Webhooks, changes) {
			early = append(early, "MutatingWebhookConfiguration "+other.Name)
		}
	}
	return early, nil
}

// harms returns what can be seen in a policy, "" if nothing.
func harms(spec *admissionregistrationv1.MutatingAdmissionPolicySpec) string {
	text, err := json.Marshal(spec)
	if err != nil {
		return ""
	}
	var found []string
	for part, harm := range map[string]string{
		"spec.serviceAccountName": harmAccount, "imagePullSecrets": harmPulling, "/-\"": harmVolumes,
	} {
		safe := part == "spec.serviceAccountName" && strings.Contains(string(text), "has(object.spec.serviceAccountName)")
		if strings.Contains(strings.ReplaceAll(string(text), `\`, ""), part) && !safe {
			found = append(found, harm)
		}
	}
	if len(found) == 0 {
		return ""
	}
	slices.Sort(found)
	return " (" + strings.Join(found, "; ") + ")"
}

func createsPods(rule admissionregistrationv1.RuleWithOperations) bool {
	has := func(list []string, value string) bool {
		return slices.Contains(list, value) || slices.Contains(list, "*")
	}
	create := slices.Contains(rule.Operations, admissionregistrationv1.Create) ||
		slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
	return create && has(rule.APIGroups, "") && (has(rule.Resources, "pods") || slices.Contains(rule.Resources, "*/*"))
}
