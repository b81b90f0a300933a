// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/testutil"
)

func TestRuleMatches(t *testing.T) {
	t.Parallel()
	deployments := metav1.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	create := []Operation{Create}
	pod := Request{Resource: pods, Operation: Create}
	status, deployment := pod, Request{Resource: deployments, Operation: Create}
	status.SubResource = "status"
	cases := map[string]struct {
		rule    Rule
		request Request
		want    bool
	}{
		"exact":          {rule: Rule{Version: "v1", Resource: "pods", Operations: create}, request: pod, want: true},
		"other version":  {rule: Rule{Version: "v2", Resource: "pods", Operations: create}, request: pod},
		"other group":    {rule: Rule{Resource: "deployments", Operations: create}, request: deployment},
		"any group":      {rule: Rule{Group: Any, Resource: "deployments", Operations: create}, request: deployment, want: true},
		"other resource": {rule: Rule{Resource: "services", Operations: create}, request: pod},
		"other operation": {
			rule: Rule{Resource: "pods", Operations: create}, request: Request{Resource: pods, Operation: Update},
		},
		"one of the operations": {
			rule: Rule{Resource: "pods", Operations: []Operation{Create, Update}}, request: Request{Resource: pods, Operation: Update}, want: true,
		},
		"any operation, also one that is not known yet": {
			rule: Rule{Resource: "pods", Operations: []Operation{Any}}, request: Request{Resource: pods, Operation: "EVICT"}, want: true,
		},
		"subresource":              {rule: Rule{Resource: "pods", Operations: create}, request: status},
		"any subresource and none": {rule: Rule{Resource: "pods", SubResource: Any, Operations: create}, request: pod, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testutil.Check(t, "matches", tc.want, tc.rule.Matches(&tc.request))
		})
	}
}

func TestRulesWithOperations(t *testing.T) {
	t.Parallel()
	scope := admissionregistrationv1.AllScopes
	want := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"pods"}, Scope: &scope},
	}, {
		Operations: []admissionregistrationv1.OperationType{"UPDATE"},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"pods/ephemeralcontainers"}, Scope: &scope,
		},
	}}
	got := RulesWithOperations([]Rule{podRule(), {Resource: "pods", SubResource: "ephemeralcontainers", Operations: []Operation{Update}}})
	testutil.Check(t, "result", want, got)
}
