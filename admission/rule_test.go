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
	cases := map[string]struct {
		reason  string
		rule    Rule
		request Request
		want    bool
	}{
		"exact": {
			reason: "every field agrees", rule: Rule{Version: "v1", Resource: "pods", Operations: create},
			request: Request{Resource: pods, Operation: Create}, want: true,
		},
		"no version": {
			reason: "an empty version is any version", rule: Rule{Resource: "pods", Operations: create},
			request: Request{Resource: pods, Operation: Create}, want: true,
		},
		"any version": {
			reason: "so is the star", rule: Rule{Version: Any, Resource: "pods", Operations: create},
			request: Request{Resource: pods, Operation: Create}, want: true,
		},
		"other version": {
			reason: "the version counts when it is given", rule: Rule{Version: "v2", Resource: "pods", Operations: create},
			request: Request{Resource: pods, Operation: Create},
		},
		"other group": {
			reason: "the core group is a group like any other", rule: Rule{Resource: "deployments", Operations: create},
			request: Request{Resource: deployments, Operation: Create},
		},
		"any group": {
			reason: "the star is any group", rule: Rule{Group: Any, Resource: "deployments", Operations: create},
			request: Request{Resource: deployments, Operation: Create}, want: true,
		},
		"other resource": {
			reason: "the resource counts", rule: Rule{Resource: "pods", Operations: create},
			request: Request{Resource: metav1.GroupVersionResource{Version: "v1", Resource: "services"}, Operation: Create},
		},
		"any resource": {
			reason: "the star is any resource", rule: Rule{Group: Any, Resource: Any, Operations: create},
			request: Request{Resource: deployments, Operation: Create}, want: true,
		},
		"other operation": {
			reason: "the operation counts", rule: Rule{Resource: "pods", Operations: create}, request: Request{Resource: pods, Operation: Update},
		},
		"one of the operations": {
			reason: "one is enough", rule: Rule{Resource: "pods", Operations: []Operation{Create, Update}},
			request: Request{Resource: pods, Operation: Update}, want: true,
		},
		"any operation": {
			reason: "also one that is not known yet", rule: Rule{Resource: "pods", Operations: []Operation{Any}},
			request: Request{Resource: pods, Operation: "EVICT"}, want: true,
		},
		"unknown operation": {
			reason: "it is none of those named", rule: Rule{Resource: "pods", Operations: []Operation{Create, Update, Delete, Connect}},
			request: Request{Resource: pods, Operation: "EVICT"},
		},
		"zero rule": {reason: "no operation, no match", rule: Rule{}, request: Request{}},
		"subresource not wanted": {
			reason: "pods is not pods/status", rule: Rule{Resource: "pods", Operations: create},
			request: Request{Resource: pods, SubResource: "status", Operation: Create},
		},
		"subresource wanted": {
			reason: "pods/exec", rule: Rule{Resource: "pods", SubResource: "exec", Operations: []Operation{Connect}},
			request: Request{Resource: pods, SubResource: "exec", Operation: Connect}, want: true,
		},
		"resource instead": {
			reason: "pods/exec is not pods", rule: Rule{Resource: "pods", SubResource: "exec", Operations: create},
			request: Request{Resource: pods, Operation: Create},
		},
		"any subresource": {
			reason: "pods/* reaches pods/status", rule: Rule{Resource: "pods", SubResource: Any, Operations: create},
			request: Request{Resource: pods, SubResource: "status", Operation: Create}, want: true,
		},
		"any subresource and none": {
			reason: "as in the apiserver, pods/* reaches pods", rule: Rule{Resource: "pods", SubResource: Any, Operations: create},
			request: Request{Resource: pods, Operation: Create}, want: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.rule.Matches(&tc.request); got != tc.want {
				t.Errorf("%s: %q matches: got %t, want %t", tc.reason, tc.rule, got, tc.want)
			}
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

func TestRuleIsBroad(t *testing.T) {
	t.Parallel()
	for text, tc := range map[string]struct {
		reason string
		rule   Rule
		want   bool
	}{
		"* pods/*": {reason: "it stays with Pods", rule: Rule{Resource: "pods", SubResource: Any, Operations: []Operation{Any}}},
		"CREATE pods.*": {
			reason: "others can own the name", rule: Rule{Group: Any, Resource: "pods", Operations: []Operation{Create}}, want: true,
		},
		"UPDATE *.apps.v1": {
			reason: "all of a group", rule: Rule{Group: "apps", Version: "v1", Resource: Any, Operations: []Operation{Update}}, want: true,
		},
	} {
		if got := tc.rule.IsBroad(); got != tc.want || tc.rule.String() != text {
			t.Errorf("%s: %s: broad is %t, want %t; the rule prints as %s", text, tc.reason, got, tc.want, tc.rule)
		}
	}
}
