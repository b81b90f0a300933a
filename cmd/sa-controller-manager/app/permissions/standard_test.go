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
// it may create no Secret outside of kube-system, and its webhook may read none but its own CA.
func TestStandardLeavesTheOptionsOut(t *testing.T) {
	t.Parallel()
	for _, rule := range StandardRules(options.New()) {
		for _, access := range Accesses([]Rule{rule}) {
			everySecret := access.Resource == secrets && access.Namespace == ""
			if everySecret && access.Verb == "create" ||
				rule.Part == "webhook" && (everySecret || access.Resource == pods && access.Verb == "get") {
				t.Errorf("the %s is granted: %s", rule.Part, access)
			}
		}
	}
}
