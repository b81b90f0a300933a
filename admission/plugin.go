// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Operation is what a request does, in the words of admission.k8s.io.
type Operation string

// The operations that admission knows.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Request is one request to kube-apiserver that asks for admission. Plugins must
// not change it.
type Request struct {
	UID         types.UID
	Kind        metav1.GroupVersionKind
	Resource    metav1.GroupVersionResource
	SubResource string
	Name        string // empty for generateName
	Namespace   string // empty for cluster-scoped objects
	Operation   Operation
	User        authenticationv1.UserInfo
	DryRun      bool

	// Object, OldObject and Options are JSON as the apiserver sent it, nil where
	// the review has none or null. Object is what earlier plugins of the chain have
	// made of it.
	Object    []byte
	OldObject []byte
	Options   []byte
}

// Response collects what plugins say about a request besides yes and no.
type Response struct {
	// Patch holds operations on Object. Only Admit may add to it.
	Patch []PatchOperation
	// Warnings are shown to the user by kubectl. Each should be under 120 characters.
	Warnings []string
	// AuditAnnotations go into the apiserver's audit log. Keys are qualified by the
	// webhook's name there.
	AuditAnnotations map[string]string
}

// Annotate adds an audit annotation.
func (r *Response) Annotate(key, value string) {
	if r.AuditAnnotations == nil {
		r.AuditAnnotations = map[string]string{}
	}
	r.AuditAnnotations[key] = value
}

// Plugin is one admission plugin. It implements Mutator, Validator or both. The
// framework calls it for the requests that its Rules match, from any goroutine.
type Plugin interface {
	// Rules say which requests the plugin wants to see.
	Rules() []Rule
	// Ready is nil once the plugin can decide. It blocks until then, until ctx ends
	// or until the framework's own timeout does, and says what is missing.
	Ready(ctx context.Context) error
}

// Mutator changes objects. Admit adds what it wants changed to response; an error
// refuses the request (see errors.go for its status).
type Mutator interface {
	Plugin
	Admit(ctx context.Context, request *Request, response *Response) error
}

// SelectiveMutator is a Mutator that changes fewer requests than it validates.
type SelectiveMutator interface {
	Mutator
	// MutatingRules say which requests Admit wants to see; Rules are those of Validate.
	MutatingRules() []Rule
}

// Validator refuses objects. An error refuses the request.
type Validator interface {
	Plugin
	Validate(ctx context.Context, request *Request, response *Response) error
}
