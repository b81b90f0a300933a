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
	// NoWait asks plugins to decide by what is there: a dry run is not worth a wait, and a large request keeps
	// others out while it waits.
	NoWait bool `json:"-"`
	// First reports that it is the first request of its connection, which has just been made.
	First bool `json:"-"`

	// Object is JSON as the apiserver sent it, nil if the review omits it or has null.
	Object []byte `json:"-"`

	parts int // see span
}

// Response collects what is returned besides the decision.
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

// Plugin decides on requests. It is called from any goroutine.
type Plugin interface {
	// Ready blocks until the plugin can decide and returns nil. It returns an error that names what
	// is missing when ctx or the plugin's own timeout ends first.
	Ready(ctx context.Context) error
	// Admit adds its changes to response, and Validate changes nothing. An error refuses the request (see errors.go for its
	// status). Both allow a request that they do not know.
	Admit(ctx context.Context, request *Request, response *Response) error
	Validate(ctx context.Context, request *Request, response *Response) error
}
