// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"encoding/json"
	"testing"
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
		var written struct {
			Rules []ruleConfig `json:"rules"`
		}
		for _, rule := range rules {
			if rule.Resource == "" || len(rule.Operations) == 0 {
				t.Errorf("a rule that matches nothing: %+v", rule)
			}
			written.Rules = append(written.Rules, ruleConfig{rule.Group, rule.Version, rule.Resource, rule.SubResource, rule.Operations})
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
