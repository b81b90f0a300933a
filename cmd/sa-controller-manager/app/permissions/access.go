// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"cmp"
	"slices"
)

// Access is one question for the API server. It is comparable: parts may need the same.
type Access struct {
	Verb      string `json:"verb"`
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource,omitempty"`
	Path      string `json:"path,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Accesses are the questions that rules come to, each one once, in a fixed order.
func Accesses(rules []Rule) []Access {
	var all []Access
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			all = append(all, Access{verb, rule.Group, rule.Resource, rule.Path, rule.Namespace, rule.Name})
		}
	}
	slices.SortFunc(all, func(a, b Access) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Verb, b.Verb))
	})
	return slices.Compact(all)
}

// String is in the words of kubectl: "patch secrets", "get configmaps/NAME in NAMESPACE".
func (a Access) String() string {
	if a.Path != "" {
		return a.Verb + " " + a.Path
	}
	text := a.Verb + " " + a.FullResource()
	if a.Name != "" {
		text += "/" + a.Name
	}
	if a.Namespace != "" {
		text += " in " + a.Namespace
	}
	return text
}

// FullResource returns the resource with its group.
func (a Access) FullResource() string {
	if a.Group == "" {
		return a.Resource
	}
	return a.Resource + "." + a.Group
}

// of reports whether the rule asks for the access.
func (a Access) of(r Rule) bool {
	return slices.Contains(r.Verbs, a.Verb) && a == Access{a.Verb, r.Group, r.Resource, r.Path, r.Namespace, r.Name}
}

// PartsOf are those that need the access, in the order of the rules.
func PartsOf(a Access, rules []Rule) []Part {
	var found []Part
	for _, rule := range rules {
		if a.of(rule) && !slices.Contains(found, rule.Part) {
			found = append(found, rule.Part)
		}
	}
	return found
}
