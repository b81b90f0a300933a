// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission"
)

// ruleConfig is a rule in the configuration of AlwaysAdmit and AlwaysDeny:
//
//	rules:
//	- {group: apps, resource: deployments, operations: [CREATE, UPDATE]}
//
// Version and operations may be left out, which means all of them.
type ruleConfig struct {
	Group       string                `json:"group"`
	Version     string                `json:"version"`
	Resource    string                `json:"resource"`
	SubResource string                `json:"subResource"`
	Operations  []admission.Operation `json:"operations"`
}

// configuredRules reads rules. Without a configuration they are all operations on
// Pods: a plugin that is switched on to look at the framework must not stop a cluster.
func configuredRules(config io.Reader) ([]admission.Rule, error) {
	if config == nil {
		return []admission.Rule{{Resource: "pods", Operations: []admission.Operation{admission.Any}}}, nil
	}
	content, err := io.ReadAll(config)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Rules []ruleConfig `json:"rules"`
	}
	if err := yaml.UnmarshalStrict(content, &parsed); err != nil {
		return nil, err
	}
	if len(parsed.Rules) == 0 {
		return nil, errors.New("rules are empty; leave the configuration out to match pods")
	}
	rules := make([]admission.Rule, len(parsed.Rules))
	for i, rule := range parsed.Rules {
		if rules[i], err = rule.rule(); err != nil {
			return nil, fmt.Errorf("rules[%d]: %w", i, err)
		}
	}
	return rules, nil
}

func (c ruleConfig) rule() (admission.Rule, error) {
	if c.Resource == "" {
		return admission.Rule{}, errors.New("no resource")
	}
	known := []admission.Operation{admission.Any, admission.Create, admission.Update, admission.Delete, admission.Connect}
	for _, operation := range c.Operations {
		if !slices.Contains(known, operation) {
			return admission.Rule{}, fmt.Errorf("operation %q is none of %q", operation, known)
		}
	}
	operations := c.Operations
	if len(operations) == 0 {
		operations = []admission.Operation{admission.Any}
	}
	return admission.Rule{Group: c.Group, Version: c.Version, Resource: c.Resource, SubResource: c.SubResource, Operations: operations}, nil
}
