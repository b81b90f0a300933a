// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ChainEntry is one plugin of a chain with the name it is enabled by.
type ChainEntry struct {
	Name   string
	Plugin Plugin
	// Metrics counts the plugin's decisions. It may be nil.
	Metrics *Metrics
}

// Chain is a list of plugins and a plugin itself. It calls them in order: a mutator sees the object
// as patched by those before it. A request that no plugin matches is allowed unchanged.
type Chain []ChainEntry

var (
	_ Mutator   = Chain{}
	_ Validator = Chain{}
)

// Rules returns the rules of all plugins.
func (c Chain) Rules() []Rule { return slices.Concat(c.MutatingRules(), c.ValidatingRules()) }

// MutatingRules returns the rules of the mutators.
func (c Chain) MutatingRules() []Rule {
	var rules []Rule
	for _, entry := range c {
		if mutator, ok := entry.Plugin.(Mutator); ok {
			rules = append(rules, mutatingRules(mutator)...)
		}
	}
	return rules
}

// ValidatingRules returns the rules of the validators.
func (c Chain) ValidatingRules() []Rule {
	var rules []Rule
	for _, entry := range c {
		if validator, ok := entry.Plugin.(Validator); ok {
			rules = append(rules, validator.Rules()...)
		}
	}
	return rules
}

func mutatingRules(mutator Mutator) []Rule {
	if selective, ok := mutator.(SelectiveMutator); ok {
		return selective.MutatingRules()
	}
	return mutator.Rules()
}

// Ready returns nil once every plugin is ready. Admit and Validate do not use it: they wait for the
// plugins that match.
func (c Chain) Ready(ctx context.Context) error {
	for _, entry := range c {
		if err := entry.Plugin.Ready(ctx); err != nil {
			return fmt.Errorf("plugin %s: %w", entry.Name, err)
		}
	}
	return nil
}

// Admit calls the mutators that match request, in order, each with the object as patched so far. It
// stops at the first refusal and then leaves response without a patch.
func (c Chain) Admit(ctx context.Context, request *Request, response *Response) error {
	current := *request
	var pending []PatchOperation
	for _, entry := range c {
		mutator, ok := entry.Plugin.(Mutator)
		if !ok || !anyMatches(mutatingRules(mutator), &current) {
			continue
		}
		object, err := applyPatch(current.Object, pending)
		if err != nil {
			response.Patch = nil
			return Internal(fmt.Errorf("apply the patch of the plugins before %s: %w", entry.Name, err))
		}
		current.Object = object
		partial, err := entry.call(ctx, pathMutate, mutator.Admit, &current)
		response.add(partial)
		if err != nil {
			response.Patch = nil
			return err
		}
		response.Patch = append(response.Patch, partial.Patch...)
		pending = partial.Patch
	}
	return nil
}

// Validate calls the validators that match request, in order, and returns the first
// refusal.
func (c Chain) Validate(ctx context.Context, request *Request, response *Response) error {
	for _, entry := range c {
		validator, ok := entry.Plugin.(Validator)
		if !ok || !anyMatches(validator.Rules(), request) {
			continue
		}
		partial, err := entry.call(ctx, pathValidate, validator.Validate, request)
		response.add(partial)
		if err != nil {
			return err
		}
	}
	return nil
}

// call waits until the plugin is ready and calls decide. The plugin gets a Response of its own, so
// that it can neither read nor undo what others added.
func (e ChainEntry) call(ctx context.Context, path string, decide decideFunc, request *Request) (*Response, error) {
	start := time.Now()
	response := &Response{}
	err := e.guarded(ctx, decide, request, response)
	if err == nil && len(response.Patch) > 0 && request.Object == nil {
		err = Internal(fmt.Errorf("plugin %s patched a request that has no object", e.Name))
	}
	e.Metrics.pluginEnds(path, e.Name, outcomeOf(response, err), start)
	return response, err
}

// guarded turns a panic of the plugin into a refusal that names it. The request is not admitted,
// and the process continues.
func (e ChainEntry) guarded(ctx context.Context, decide decideFunc, request *Request, response *Response) (err error) {
	defer recoverAs(ctx, &err, "plugin", e.Name)
	if err := e.Plugin.Ready(ctx); err != nil {
		// As upstream, unless the plugin chose its own status.
		if api := apierrors.APIStatus(nil); !errors.As(err, &api) {
			err = Forbidden(request, err)
		}
		return notReadyError{err}
	}
	return decide(ctx, request, response)
}

// add appends the warnings and audit annotations of partial.
func (r *Response) add(partial *Response) {
	r.Warnings = append(r.Warnings, partial.Warnings...)
	r.Close = r.Close || partial.Close
	for key, value := range partial.AuditAnnotations {
		r.Annotate(key, value)
	}
}
