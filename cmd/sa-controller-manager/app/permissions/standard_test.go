// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// TestNothingIsGrantedTwice: what one role has twice is a mistake too.
func TestNothingIsGrantedTwice(t *testing.T) {
	t.Parallel()
	rules := all()
	for _, rule := range rules {
		if rule.Why == "" {
			t.Errorf("%s: no reason for %v", rule.Part, Accesses([]Rule{rule}))
		}
	}
	for _, key := range rolesOf(rules, Accesses(rules)) {
		seen := map[Access]bool{}
		for _, rule := range key.rules(rules) {
			for _, access := range Accesses([]Rule{rule}) {
				if seen[access] {
					t.Errorf("the role %s grants twice: %s", key.name(), access)
				}
				seen[access] = true
			}
		}
	}
}

// TestStandardLeavesTheOptionsOut is about the identity of a process as the manifests run it:
// its webhook may read no Secret but its own CA.
func TestStandardLeavesTheOptionsOut(t *testing.T) {
	t.Parallel()
	for _, rule := range StandardRules(options.New()) {
		if rule.Part != "webhook" {
			continue
		}
		for _, access := range Accesses([]Rule{rule}) {
			if access.Resource == secrets && access.Namespace == "" || access.Resource == pods && access.Verb == "get" {
				t.Errorf("the webhook is granted: %s", access)
			}
		}
	}
}
