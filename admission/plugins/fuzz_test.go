// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"encoding/json"
	"testing"

	"sa-controller-manager/admission"
)

// FuzzConfiguredRules: rules that are accepted say what they match, and the same once they are
// written again.
func FuzzConfiguredRules(f *testing.F) {
	for _, seed := range []string{
		"", "rules: []", "rules:\n- {group: apps, resource: deployments, operations: [CREATE, UPDATE]}\n", "rules: [{resource: '*', version: v1, subResource: x}]",
		"rules: [{resource: pods, operations: [create]}]", "rules: [{}]", "rules: [null]", "Rules: [{resource: a}]", "{",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		rules, err := configuredRules(bytes.NewReader(content))
		if (err == nil) != (len(rules) > 0) {
			t.Fatalf("%d rules and %v", len(rules), err)
		}
		written := map[string][]admission.Rule{"rules": rules}
		for _, rule := range rules {
			if rule.Resource == "" || len(rule.Operations) == 0 {
				t.Errorf("a rule that matches nothing: %+v", rule)
			}
		}
		if err != nil {
			return
		}
		encoded, err := json.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		again, err := configuredRules(bytes.NewReader(encoded))
		if err != nil || len(again) != len(rules) {
			t.Fatalf("%s is read again as %v, %v", encoded, again, err)
		}
	})
}
