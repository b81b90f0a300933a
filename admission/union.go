// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Union returns the fewest rules that match what any of rules matches, in an order
// that depends on nothing but their content: it is written to the API, and what does
// not change must not look changed.
func Union(rules []Rule) []Rule {
	var merged []Rule
	for _, rule := range rules {
		at := slices.IndexFunc(merged, rule.sameTarget)
		if at < 0 {
			rule.Operations = slices.Clone(rule.Operations)
			merged = append(merged, rule)
			continue
		}
		merged[at].Operations = append(merged[at].Operations, rule.Operations...)
	}
	for i := range merged {
		merged[i].Operations = normalOperations(merged[i].Operations)
	}
	merged = slices.DeleteFunc(merged, func(r Rule) bool { return len(r.Operations) == 0 })
	return sortedRules(withoutCovered(merged))
}

// withoutCovered drops rules that another one covers. No two rules have the same
// target here, so no two cover each other.
func withoutCovered(rules []Rule) []Rule {
	var kept []Rule
	for i, rule := range rules {
		covered := false
		for j, other := range rules {
			covered = covered || i != j && other.covers(rule)
		}
		if !covered {
			kept = append(kept, rule)
		}
	}
	return kept
}

// normalOperations sorts operations, each once. Any swallows the others.
func normalOperations(operations []Operation) []Operation {
	if slices.Contains(operations, Any) {
		return []Operation{Any}
	}
	operations = slices.Clone(operations)
	slices.Sort(operations)
	return slices.Compact(operations)
}

func sortedRules(rules []Rule) []Rule {
	slices.SortFunc(rules, func(a, b Rule) int {
		return cmp.Or(
			cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.version(), b.version()),
			cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.SubResource, b.SubResource),
		)
	})
	return rules
}

// RulesWithOperations writes rules as a webhook configuration wants them. Every field
// is set, so that what the apiserver gives back compares equal.
func RulesWithOperations(rules []Rule) []admissionregistrationv1.RuleWithOperations {
	scope := admissionregistrationv1.AllScopes
	var wanted []admissionregistrationv1.RuleWithOperations
	for _, rule := range Union(rules) {
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
