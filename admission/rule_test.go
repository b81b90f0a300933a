// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		"exact":                    {reason: "every field agrees", rule: Rule{Version: "v1", Resource: "pods", Operations: create}, request: Request{Resource: pods, Operation: Create}, want: true},
		"no version":               {reason: "an empty version is any version", rule: Rule{Resource: "pods", Operations: create}, request: Request{Resource: pods, Operation: Create}, want: true},
		"any version":              {reason: "so is the star", rule: Rule{Version: Any, Resource: "pods", Operations: create}, request: Request{Resource: pods, Operation: Create}, want: true},
		"other version":            {reason: "the version counts when it is given", rule: Rule{Version: "v2", Resource: "pods", Operations: create}, request: Request{Resource: pods, Operation: Create}},
		"other group":              {reason: "the core group is a group like any other", rule: Rule{Resource: "deployments", Operations: create}, request: Request{Resource: deployments, Operation: Create}},
		"any group":                {reason: "the star is any group", rule: Rule{Group: Any, Resource: "deployments", Operations: create}, request: Request{Resource: deployments, Operation: Create}, want: true},
		"other resource":           {reason: "the resource counts", rule: Rule{Resource: "pods", Operations: create}, request: Request{Resource: metav1.GroupVersionResource{Version: "v1", Resource: "services"}, Operation: Create}},
		"any resource":             {reason: "the star is any resource", rule: Rule{Group: Any, Resource: Any, Operations: create}, request: Request{Resource: deployments, Operation: Create}, want: true},
		"other operation":          {reason: "the operation counts", rule: Rule{Resource: "pods", Operations: create}, request: Request{Resource: pods, Operation: Update}},
		"one of the operations":    {reason: "one is enough", rule: Rule{Resource: "pods", Operations: []Operation{Create, Update}}, request: Request{Resource: pods, Operation: Update}, want: true},
		"any operation":            {reason: "also one that is not known yet", rule: Rule{Resource: "pods", Operations: []Operation{Any}}, request: Request{Resource: pods, Operation: "EVICT"}, want: true},
		"unknown operation":        {reason: "it is none of those named", rule: Rule{Resource: "pods", Operations: []Operation{Create, Update, Delete, Connect}}, request: Request{Resource: pods, Operation: "EVICT"}},
		"zero rule":                {reason: "no operation, no match", rule: Rule{}, request: Request{}},
		"subresource not wanted":   {reason: "pods is not pods/status", rule: Rule{Resource: "pods", Operations: create}, request: Request{Resource: pods, SubResource: "status", Operation: Create}},
		"subresource wanted":       {reason: "pods/exec", rule: Rule{Resource: "pods", SubResource: "exec", Operations: []Operation{Connect}}, request: Request{Resource: pods, SubResource: "exec", Operation: Connect}, want: true},
		"resource instead":         {reason: "pods/exec is not pods", rule: Rule{Resource: "pods", SubResource: "exec", Operations: create}, request: Request{Resource: pods, Operation: Create}},
		"any subresource":          {reason: "pods/* reaches pods/status", rule: Rule{Resource: "pods", SubResource: Any, Operations: create}, request: Request{Resource: pods, SubResource: "status", Operation: Create}, want: true},
		"any subresource and none": {reason: "as in the apiserver, pods/* reaches pods", rule: Rule{Resource: "pods", SubResource: Any, Operations: create}, request: Request{Resource: pods, Operation: Create}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.rule.Matches(&tc.request); got != tc.want {
				t.Errorf("%s: %q matches: got %t, want %t", tc.reason, tc.rule, got, tc.want)
			}
		})
	}
}

func TestUnion(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		rules  []Rule
		want   []string
	}{
		"none":                       {reason: "nothing in, nothing out"},
		"one":                        {reason: "kept", rules: []Rule{podRule()}, want: []string{"CREATE pods"}},
		"twice the same":             {reason: "once is enough", rules: []Rule{podRule(), podRule()}, want: []string{"CREATE pods"}},
		"operations of one target":   {reason: "they become one rule, sorted", rules: []Rule{{Resource: "pods", Operations: []Operation{Update}}, {Resource: "pods", Version: Any, Operations: []Operation{Create, Update}}}, want: []string{"CREATE,UPDATE pods"}},
		"any operation":              {reason: "the star swallows the others", rules: []Rule{podRule(), {Resource: "pods", Operations: []Operation{Any}}}, want: []string{"* pods"}},
		"covered":                    {reason: "pods/* covers pods/exec", rules: []Rule{{Resource: "pods", SubResource: "exec", Operations: []Operation{Create}}, {Resource: "pods", SubResource: Any, Operations: []Operation{Create, Connect}}}, want: []string{"CONNECT,CREATE pods/*"}},
		"not covered":                {reason: "another operation", rules: []Rule{{Resource: "pods", SubResource: "exec", Operations: []Operation{Connect}}, {Resource: "pods", SubResource: Any, Operations: []Operation{Create}}}, want: []string{"CREATE pods/*", "CONNECT pods/exec"}},
		"everything":                 {reason: "it covers all", rules: []Rule{podRule(), {Group: "apps", Resource: "deployments", Operations: []Operation{Delete}}, {Group: Any, Resource: Any, SubResource: Any, Operations: []Operation{Any}}}, want: []string{"* *.*/*"}},
		"no operation":               {reason: "a rule that matches nothing is none", rules: []Rule{{Resource: "pods"}}},
		"named version in any":       {reason: "v1 is covered by any version", rules: []Rule{{Version: "v1", Resource: "pods", Operations: []Operation{Create}}, podRule()}, want: []string{"CREATE pods"}},
		"two versions stay separate": {reason: "neither covers the other", rules: []Rule{{Version: "v2", Resource: "pods", Operations: []Operation{Create}}, {Version: "v1", Resource: "pods", Operations: []Operation{Create}}}, want: []string{"CREATE pods.v1", "CREATE pods.v2"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				rand.Shuffle(len(tc.rules), func(i, j int) { tc.rules[i], tc.rules[j] = tc.rules[j], tc.rules[i] })
				var got []string
				for _, rule := range Union(tc.rules) {
					got = append(got, rule.String())
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Fatalf("%s: -want +got:\n%s", tc.reason, diff)
				}
			}
		})
	}
}

func TestUnionLeavesItsInputAlone(t *testing.T) {
	t.Parallel()
	operations := make([]Operation, 1, 8)
	operations[0] = Update
	rules := []Rule{{Resource: "pods", Operations: operations}, podRule()}
	Union(rules)
	if diff := cmp.Diff([]Operation{Update, "", ""}, operations[:3]); diff != "" {
		t.Errorf("a plugin's own list changed (-want +got):\n%s", diff)
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
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"pods/ephemeralcontainers"}, Scope: &scope},
	}}
	got := RulesWithOperations([]Rule{{Resource: "pods", SubResource: "ephemeralcontainers", Operations: []Operation{Update}}, podRule()})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRuleIsBroad(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		rule   Rule
		want   bool
	}{
		"named":          {reason: "pods/* stays with Pods", rule: Rule{Resource: "pods", SubResource: Any, Operations: []Operation{Any}}},
		"every group":    {reason: "others can own the name", rule: Rule{Group: Any, Resource: "pods"}, want: true},
		"every resource": {reason: "all of a group", rule: Rule{Resource: Any}, want: true},
	} {
		if got := tc.rule.IsBroad(); got != tc.want {
			t.Errorf("%s: %s: got %t, want %t", name, tc.reason, got, tc.want)
		}
	}
}
