// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"sigs.k8s.io/yaml"

	"sa-controller-manager/admission"
)

// The names of the plugins that NewAlwaysAdmit and NewAlwaysDeny build.
const (
	AlwaysAdmit = "AlwaysAdmit"
	AlwaysDeny  = "AlwaysDeny"
)

// always makes the same decision for every request that it matches.
type always struct {
	admission.Handler

	rules  []admission.Rule
	reason error // of a refusal, nil to allow
}

// NewAlwaysAdmit builds a plugin that allows every request that it matches: Pods, unless
// configured. It shows that calls arrive.
func NewAlwaysAdmit(config io.Reader) (admission.Plugin, error) { return newAlways(config, nil) }

// NewAlwaysDeny builds a plugin that refuses every request that it matches: Pods, unless
// configured.
func NewAlwaysDeny(config io.Reader) (admission.Plugin, error) {
	return newAlways(config, errors.New("admission control is denying all modifications"))
}

func newAlways(config io.Reader, reason error) (admission.Plugin, error) {
	rules, err := configuredRules(config)
	if err != nil {
		return nil, err
	}
	return &always{rules: rules, reason: reason}, nil
}

func (a *always) Rules() []admission.Rule { return a.rules }

func (a *always) Admit(_ context.Context, request *admission.Request, _ *admission.Response) error {
	if a.reason == nil {
		return nil
	}
	return admission.Forbidden(request, a.reason)
}

func (a *always) Validate(ctx context.Context, request *admission.Request, response *admission.Response) error {
	return a.Admit(ctx, request, response)
}

// configuredRules reads rules:
//
//	rules:
//	- {group: apps, resource: deployments, operations: [CREATE, UPDATE]}
//
// Version and operations default to all. Without a configuration
// the rules are all operations on Pods: a plugin that is enabled to try the framework must
// not stop a cluster.
func configuredRules(config io.Reader) ([]admission.Rule, error) {
	if config == nil {
		return []admission.Rule{{Resource: "pods", Operations: []admission.Operation{admission.Any}}}, nil
	}
	content, err := io.ReadAll(config)
	if err != nil {
		return nil, err
	}
	var parsed struct {
		Rules []admission.Rule `json:"rules"`
	}
	if err := yaml.UnmarshalStrict(content, &parsed); err != nil {
		return nil, err
	}
	if len(parsed.Rules) == 0 {
		return nil, errors.New("rules are empty; leave the configuration out to match pods")
	}
	for i := range parsed.Rules {
		if err := complete(&parsed.Rules[i]); err != nil {
			return nil, fmt.Errorf("rules[%d]: %w", i, err)
		}
	}
	return parsed.Rules, nil
}

// complete sets defaults and refuses rules that kube-apiserver would not accept.
func complete(rule *admission.Rule) error {
	if rule.Resource == "" {
		return errors.New("no resource")
	}
	known := []admission.Operation{admission.Any, admission.Create, admission.Update, admission.Delete, admission.Connect}
	for _, operation := range rule.Operations {
		if !slices.Contains(known, operation) {
			return fmt.Errorf("operation %q is not one of %q", operation, known)
		}
	}
	if len(rule.Operations) == 0 || slices.Contains(rule.Operations, admission.Any) {
		rule.Operations = []admission.Operation{admission.Any}
	}
	return nil
}
