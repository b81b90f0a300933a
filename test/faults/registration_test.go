// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// registeredWell is a registration with every field that a webhook has.
func registeredWell() registered {
	client := admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:10258/"), CABundle: []byte("CA")}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	conditions := []admissionregistrationv1.MatchCondition{{Name: "not-a-mirror-pod", Expression: "true"}}
	return registered{
		Mutating: []admissionregistrationv1.MutatingWebhook{{
			Name: "mutate", ClientConfig: client, Rules: rules, MatchConditions: conditions,
			FailurePolicy: new(admissionregistrationv1.Fail), MatchPolicy: new(admissionregistrationv1.Equivalent),
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			SideEffects: new(admissionregistrationv1.SideEffectClassNoneOnDryRun), TimeoutSeconds: new(int32(10)),
			AdmissionReviewVersions: []string{"v1", "v1beta1"}, ReinvocationPolicy: new(admissionregistrationv1.IfNeededReinvocationPolicy),
		}},
		Validating: []admissionregistrationv1.ValidatingWebhook{{
			Name: "validate", ClientConfig: client, Rules: rules, MatchConditions: conditions,
			FailurePolicy: new(admissionregistrationv1.Fail), MatchPolicy: new(admissionregistrationv1.Equivalent),
			NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
			SideEffects: new(admissionregistrationv1.SideEffectClassNoneOnDryRun), TimeoutSeconds: new(int32(10)),
			AdmissionReviewVersions: []string{"v1", "v1beta1"},
		}},
	}
}

func TestRegisteredDiffers(t *testing.T) {
	t.Parallel()
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"nobody": "has-it"}}
	cases := map[string]struct {
		reason string
		edit   func(*registered)
		want   []string
	}{
		"Same": {edit: func(*registered) {}},
		"NewBundles": {reason: "they only have to be good", edit: func(r *registered) {
			r.Mutating[0].ClientConfig.CABundle, r.Validating[0].ClientConfig.CABundle = []byte("new"), nil
		}},
		"Emptied": {edit: func(r *registered) { r.Validating = nil }, want: []string{"there are 0 validating webhooks, want 1"}},
		"Name":    {edit: func(r *registered) { r.Mutating[0].Name = "probe" }, want: []string{"mutating name"}},
		"URL":     {edit: func(r *registered) { r.Validating[0].ClientConfig.URL = new("https://127.0.0.1:1/") }, want: []string{"validating clientConfig"}},
		"Service": {edit: func(r *registered) {
			r.Mutating[0].ClientConfig.Service = &admissionregistrationv1.ServiceReference{Name: "x"}
		}, want: []string{"mutating clientConfig"}},
		"Operations": {reason: "there are as many rules", edit: func(r *registered) {
			r.Mutating[0].Rules = []admissionregistrationv1.RuleWithOperations{{Rule: r.Mutating[0].Rules[0].Rule}}
		}, want: []string{"mutating rules"}},
		"FailurePolicy":     {edit: func(r *registered) { r.Validating[0].FailurePolicy = new(admissionregistrationv1.Ignore) }, want: []string{"validating failurePolicy"}},
		"MatchPolicy":       {edit: func(r *registered) { r.Validating[0].MatchPolicy = new(admissionregistrationv1.Exact) }, want: []string{"validating matchPolicy"}},
		"NamespaceSelector": {edit: func(r *registered) { r.Mutating[0].NamespaceSelector = selector }, want: []string{"mutating namespaceSelector"}},
		"ObjectSelector":    {edit: func(r *registered) { r.Validating[0].ObjectSelector = selector }, want: []string{"validating objectSelector"}},
		"SideEffects":       {edit: func(r *registered) { r.Mutating[0].SideEffects = new(admissionregistrationv1.SideEffectClassNone) }, want: []string{"mutating sideEffects"}},
		"Timeout":           {edit: func(r *registered) { r.Validating[0].TimeoutSeconds = new(int32(1)) }, want: []string{"validating timeoutSeconds"}},
		"Versions":          {edit: func(r *registered) { r.Mutating[0].AdmissionReviewVersions = []string{"v1"} }, want: []string{"mutating admissionReviewVersions"}},
		"Conditions":        {edit: func(r *registered) { r.Mutating[0].MatchConditions = nil }, want: []string{"mutating matchConditions"}},
		"Reinvocation": {edit: func(r *registered) {
			r.Mutating[0].ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
		}, want: []string{"mutating reinvocationPolicy"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := registeredWell()
			tc.edit(&now)
			if diff := cmp.Diff(tc.want, now.differs(registeredWell())); diff != "" {
				t.Errorf("%s\nwhat differs (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
