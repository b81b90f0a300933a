// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ChainEntry is one plugin of a chain, with its name for metrics and errors.
type ChainEntry struct {
	Name   string
	Plugin Plugin
	// Metrics counts the plugin's decisions. It may be nil.
	Metrics *Metrics
}

// Chain is a list of plugins: the one that answers probes, and ServiceAccount. It calls them in order: a mutator
// sees the object as patched by those before it. A request that no plugin matches is allowed unchanged.
type Chain []ChainEntry

func mutatingRules(mutator Mutator) []Rule {
	if selective, ok := mutator.(SelectiveMutator); ok {
		return selective.MutatingRules()
	}
	return mutator.Rules()
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
