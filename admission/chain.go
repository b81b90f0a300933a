// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

// ChainEntry is one plugin of a chain under the name it is enabled by.
type ChainEntry struct {
	Name   string
	Plugin Plugin
	// Metrics counts what the plugin does. Nil counts nothing.
	Metrics *Metrics
}

// Chain is a list of plugins that is itself one. The order is the order of calls: a
// mutator sees what those before it made of the object. A request that no plugin
// matches is allowed as it is.
type Chain []ChainEntry

var (
	_ Mutator   = Chain{}
	_ Validator = Chain{}
)

// Rules are what the plugins match.
func (c Chain) Rules() []Rule { return slices.Concat(c.MutatingRules(), c.ValidatingRules()) }

// MutatingRules are what the mutators match.
func (c Chain) MutatingRules() []Rule {
	var rules []Rule
	for _, entry := range c {
		if mutator, ok := entry.Plugin.(Mutator); ok {
			rules = append(rules, mutatingRules(mutator)...)
		}
	}
	return rules
}

// ValidatingRules are what the validators match.
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

// Names lists the plugins in their order.
func (c Chain) Names() []string {
	names := make([]string, len(c))
	for i, entry := range c {
		names[i] = entry.Name
	}
	return names
}

// Ready is nil once every plugin is ready. Requests do not need it: Admit and
// Validate ask the plugins that match.
func (c Chain) Ready(ctx context.Context) error {
	for _, entry := range c {
		if err := entry.Plugin.Ready(ctx); err != nil {
			return fmt.Errorf("plugin %s: %w", entry.Name, err)
		}
	}
	return nil
}

// Admit calls the mutators that match request, in order, each with the object as
// patched so far. It stops at the first refusal, and then response holds no patch.
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

// call lets one plugin decide, once it is ready. What it says is kept apart from what
// the others said, so that it can neither read nor undo it.
func (e ChainEntry) call(ctx context.Context, path string, decide func(context.Context, *Request, *Response) error, request *Request) (*Response, error) {
	finish := e.Metrics.pluginStarts(path, e.Name)
	response := &Response{}
	err := e.guarded(ctx, func(ctx context.Context) error {
		if err := e.Plugin.Ready(ctx); err != nil {
			return notReady(request, err)
		}
		return decide(ctx, request, response)
	})
	if err == nil && len(response.Patch) > 0 && request.Object == nil {
		err = Internal(fmt.Errorf("plugin %s patched a request that has no object", e.Name))
	}
	finish(response, err)
	return response, err
}

// guarded turns a panic of the plugin into a refusal that names it. The request does
// not get through, and the process lives on.
func (e ChainEntry) guarded(ctx context.Context, decide func(context.Context) error) (err error) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("plugin", e.Name))
	defer recoverAs(ctx, &err, "plugin "+e.Name)
	return decide(ctx)
}

// notReady is Forbidden, as upstream has it, unless the plugin chose its own status.
func notReady(request *Request, err error) error {
	if api := apierrors.APIStatus(nil); !errors.As(err, &api) {
		err = Forbidden(request, err)
	}
	return notReadyError{err}
}

// add takes over what a plugin says besides its patch.
func (r *Response) add(partial *Response) {
	r.Warnings = append(r.Warnings, partial.Warnings...)
	for key, value := range partial.AuditAnnotations {
		r.Annotate(key, value)
	}
}
