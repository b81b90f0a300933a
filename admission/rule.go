// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Any stands for every value in any field of a Rule, as it does in the rules of a
// webhook configuration.
const Any = "*"

// Rule says which requests a plugin wants to see. A request must agree with every
// field. The zero Rule matches nothing, because it names no operation.
type Rule struct {
	// Group is the API group, empty for the core group.
	Group string
	// Version is the API version. Empty is the same as Any.
	Version string
	// Resource is the plural name, such as pods.
	Resource string
	// SubResource is empty for the resource alone. Any means the resource and all
	// that is below it, as "pods/*" does in a webhook configuration
	// (k8s.io/apiserver pkg/admission/plugin/webhook/predicates/rules).
	SubResource string
	// Operations lists what is done to the resource. It may hold Any.
	Operations []Operation
}

// Matches tells whether the rule wants to see request.
func (r Rule) Matches(request *Request) bool {
	return r.hasOperation(request.Operation) &&
		agree(r.Group, request.Resource.Group) &&
		agree(r.version(), request.Resource.Version) &&
		agree(r.Resource, request.Resource.Resource) &&
		agree(r.SubResource, request.SubResource)
}

// IsBroad tells whether the rule reaches resources that it does not name.
func (r Rule) IsBroad() bool { return r.Group == Any || r.Resource == Any }

// String shows the rule as a person would write it, such as
// "CREATE,UPDATE pods/ephemeralcontainers".
func (r Rule) String() string {
	var target strings.Builder
	target.WriteString(r.Resource)
	if r.Group != "" {
		target.WriteString("." + r.Group)
	}
	if r.version() != Any {
		target.WriteString("." + r.Version)
	}
	if r.SubResource != "" {
		target.WriteString("/" + r.SubResource)
	}
	operations := make([]string, len(r.Operations))
	for i, operation := range r.Operations {
		operations[i] = string(operation)
	}
	return strings.Join(operations, ",") + " " + target.String()
}

// covers tells whether every request that other matches is matched by r too.
func (r Rule) covers(other Rule) bool {
	return agree(r.Group, other.Group) &&
		agree(r.version(), other.version()) &&
		agree(r.Resource, other.Resource) &&
		agree(r.SubResource, other.SubResource) &&
		!slices.ContainsFunc(other.Operations, func(o Operation) bool { return !r.hasOperation(o) })
}

// sameTarget tells whether two rules differ in their operations at most.
func (r Rule) sameTarget(other Rule) bool {
	return r.Group == other.Group && r.version() == other.version() &&
		r.Resource == other.Resource && r.SubResource == other.SubResource
}

func (r Rule) hasOperation(operation Operation) bool {
	return slices.Contains(r.Operations, Any) || slices.Contains(r.Operations, operation)
}

func (r Rule) version() string {
	if r.Version == "" {
		return Any
	}
	return r.Version
}

func agree(pattern, value string) bool { return pattern == Any || pattern == value }

// anyMatches tells whether one of rules wants to see request.
func anyMatches(rules []Rule, request *Request) bool {
	return slices.ContainsFunc(rules, func(r Rule) bool { return r.Matches(request) })
}

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
