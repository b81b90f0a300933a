// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Operation is the operation of a request, as named by admission.k8s.io.
type Operation string

// The operations of admission.k8s.io.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Request is one admission request, with the names that an AdmissionReview has for its fields. Plugins must
// not change it.
type Request struct {
	UID         types.UID                   `json:"uid"`
	Kind        metav1.GroupVersionKind     `json:"kind"`
	Resource    metav1.GroupVersionResource `json:"resource"`
	SubResource string                      `json:"subResource"`
	Name        string                      `json:"name"`      // empty for generateName
	Namespace   string                      `json:"namespace"` // empty for cluster-scoped objects
	Operation   Operation                   `json:"operation"`
	DryRun      bool                        `json:"dryRun"`
	// NoWait asks plugins to decide by what is there: nobody waits for a dry run, and a large request keeps
	// others out while it waits.
	NoWait bool `json:"-"`
	// First reports that it is the first request of its connection, which has just been made.
	First bool `json:"-"`

	// Object is JSON as the apiserver sent it, nil if the review omits it or has null. It includes the
	// patches of earlier plugins in the chain.
	Object []byte `json:"-"`

	parts int // see span
}

// Response collects what plugins return besides the decision.
type Response struct {
	// Patch holds operations on Request.Object. Only Admit may add to it.
	Patch []PatchOperation
	// Warnings are shown to the user by kubectl. Each should be under 120 characters.
	Warnings []string
	// AuditAnnotations go into the apiserver's audit log. Keys are qualified by the
	// webhook's name there.
	AuditAnnotations map[string]string
	// Close has the connection closed, so that the next request makes a new one.
	Close bool
}

// Annotate adds an audit annotation.
func (r *Response) Annotate(key, value string) {
	if r.AuditAnnotations == nil {
		r.AuditAnnotations = map[string]string{}
	}
	r.AuditAnnotations[key] = value
}

// Plugin is one admission plugin. It implements Mutator, Validator or both. The framework calls it
// for the requests that its Rules match, from any goroutine.
type Plugin interface {
	// Rules returns the rules of the requests that the plugin handles.
	Rules() []Rule
	// Ready blocks until the plugin can decide and returns nil. It returns an error that names what
	// is missing when ctx or the framework's timeout ends first.
	Ready(ctx context.Context) error
}

// Mutator changes objects. Admit adds its changes to response; an error refuses the request (see
// errors.go for its status).
type Mutator interface {
	Plugin
	Admit(ctx context.Context, request *Request, response *Response) error
}

// SelectiveMutator is a Mutator whose Admit handles fewer requests than its Validate.
type SelectiveMutator interface {
	Mutator
	// MutatingRules returns the rules for Admit; Rules returns those for Validate.
	MutatingRules() []Rule
}

// Validator refuses objects. An error refuses the request.
type Validator interface {
	Plugin
	Validate(ctx context.Context, request *Request, response *Response) error
}
