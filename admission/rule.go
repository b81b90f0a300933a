// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"slices"
	"strings"
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
