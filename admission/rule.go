// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Any matches every value of a field of a Rule, as in the rules of a webhook configuration.
const Any = "*"

// Rule matches the requests that a plugin handles. All fields must match. The zero Rule matches
// nothing, because it has no operation.
type Rule struct {
	// Group is the API group, empty for the core group.
	Group string `json:"group"`
	// Version is the API version. Empty is the same as Any.
	Version string `json:"version"`
	// Resource is the plural name, such as pods.
	Resource string `json:"resource"`
	// SubResource is empty for the resource without subresources. Any means the resource and all
	// its subresources, as "pods/*" in a webhook configuration (k8s.io/apiserver
	// pkg/admission/plugin/webhook/predicates/rules).
	SubResource string `json:"subResource"`
	// Operations lists the operations. It may contain Any.
	Operations []Operation `json:"operations"`
}

// Matches reports whether the rule matches request.
func (r Rule) Matches(request *Request) bool {
	return r.hasOperation(request.Operation) &&
		agree(r.Group, request.Resource.Group) &&
		agree(r.version(), request.Resource.Version) &&
		agree(r.Resource, request.Resource.Resource) &&
		agree(r.SubResource, request.SubResource)
}

func (r Rule) hasOperation(operation Operation) bool {
	return slices.Contains(r.Operations, Any) || slices.Contains(r.Operations, operation)
}

func (r Rule) version() string {
	return cmp.Or(r.Version, Any)
}

func agree(pattern, value string) bool { return pattern == Any || pattern == value }

// anyMatches reports whether one of rules matches request.
func anyMatches(rules []Rule, request *Request) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.Matches(request) })
}

// RulesWithOperations converts rules for a webhook configuration. Every field is set, so that the
// object that the apiserver returns compares equal.
func RulesWithOperations(rules []Rule) []admissionregistrationv1.RuleWithOperations {
	scope := admissionregistrationv1.AllScopes
	var wanted []admissionregistrationv1.RuleWithOperations
	for _, rule := range rules {
		resource := rule.Resource
		if rule.SubResource != "" {
			resource += "/" + rule.SubResource
		}
		operations := make([]admissionregistrationv1.OperationType, len(rule.Operations))
		for i, operation := range rule.Operations {
			operations[i] = admissionregistrationv1.OperationType(operation)
		}
		wanted = append(wanted, admissionregistrationv1.RuleWithOperations{
			Operations: operations,
			Rule: admissionregistrationv1.Rule{
				APIGroups:   []string{rule.Group},
				APIVersions: []string{rule.version()},
				Resources:   []string{resource},
				Scope:       &scope,
			},
		})
	}
	return wanted
}
