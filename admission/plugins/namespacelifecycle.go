// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"

	"sa-controller-manager/admission"
)

// NamespaceLifecycle is the name of the plugin that NewNamespaceLifecycle builds.
const NamespaceLifecycle = "NamespaceLifecycle"

const (
	// distrustFor is how long the cache is not trusted that a namespace is active after its
	// deletion was seen here. Both numbers are upstream's.
	distrustFor      = 30 * time.Second
	distrustedAtMost = 100
)

// NamespaceLifecycleDeps are the dependencies of NamespaceLifecycle.
type NamespaceLifecycleDeps struct {
	// Lister reads the informer's cache, which is filled once Synced is closed.
	Lister corev1listers.NamespaceLister
	Synced <-chan struct{}
	// Client reads a namespace that the cache does not have or is not trusted for.
	Client corev1client.NamespacesGetter
}

// NewNamespaceLifecycle returns a factory of the plugin that refuses new objects in namespaces that
// do not exist or are being deleted, and the deletion of the three namespaces that a cluster needs.
// It matches every resource.
//
// Pods are also refused before mutation, so that the user sees the error of the namespace and not
// that of a missing account in it. Upstream does so for everything; here the apiserver would call
// twice for every request, and other mutators only read namespaces for Pods.
//
// It decides as k8s.io/apiserver v0.37 pkg/admission/plugin/namespace/lifecycle. The one difference: a
// namespace that the cache does not have yet is read at once, where upstream sleeps for 50 ms
// first.
func NewNamespaceLifecycle(deps NamespaceLifecycleDeps) admission.Factory {
	return func(io.Reader) (admission.Plugin, error) {
		n := &namespaceLifecycle{deps: deps, deleted: utilcache.NewLRUExpireCache(distrustedAtMost)}
		n.SetReadyChannels(deps.Synced)
		return n, nil
	}
}

var (
	_ admission.SelectiveMutator = (*namespaceLifecycle)(nil)
	_ admission.Validator        = (*namespaceLifecycle)(nil)
)

type namespaceLifecycle struct {
	admission.Handler

	deps    NamespaceLifecycleDeps
	deleted *utilcache.LRUExpireCache
}

func (*namespaceLifecycle) Rules() []admission.Rule {
	return []admission.Rule{{Group: admission.Any, Resource: admission.Any, SubResource: admission.Any,
		Operations: []admission.Operation{admission.Create, admission.Delete}}}
}

// MutatingRules match the creation of Pods.
func (*namespaceLifecycle) MutatingRules() []admission.Rule {
	return []admission.Rule{{Resource: "pods", Operations: []admission.Operation{admission.Create}}}
}

// Admit refuses early and changes nothing.
func (n *namespaceLifecycle) Admit(ctx context.Context, request *admission.Request, response *admission.Response) error {
	return n.Validate(ctx, request, response)
}

func (n *namespaceLifecycle) Validate(ctx context.Context, request *admission.Request, _ *admission.Response) error {
	if request.Kind.Group == "" && request.Kind.Kind == "Namespace" {
		return n.validateNamespace(request)
	}
	if request.Namespace == "" || request.Operation != admission.Create || isAccessReview(request) {
		return nil
	}
	namespace, err := n.find(ctx, request.Namespace)
	if apierrors.IsNotFound(err) {
		return err
	}
	if err != nil {
		return admission.Internal(err)
	}
	if namespace.Status.Phase == corev1.NamespaceTerminating {
		return terminating(request)
	}
	return nil
}

// validateNamespace refuses the deletion of the protected namespaces, and records other deletions:
// the cache may not know of them when the next object is created.
func (n *namespaceLifecycle) validateNamespace(request *admission.Request) error {
	if request.Operation != admission.Delete {
		return nil
	}
	switch request.Name {
	case metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic:
		return admission.Forbidden(request, errors.New("this namespace may not be deleted"))
	}
	if !request.DryRun {
		n.deleted.Add(request.Name, true, distrustFor)
	}
	return nil
}

// find returns the namespace from the cache, or from the API if the cache does not have it or may
// be stale.
func (n *namespaceLifecycle) find(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace, err := n.deps.Lister.Get(name)
	if err == nil {
		_, distrusted := n.deleted.Get(name)
		if !distrusted || namespace.Status.Phase != corev1.NamespaceActive {
			return namespace, nil
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return n.deps.Client.Namespaces().Get(ctx, name, metav1.GetOptions{})
}

// terminating returns a refusal with the cause by which controllers know not to retry.
func terminating(request *admission.Request) error {
	err := admission.Forbidden(request,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", request.Namespace))
	if refusal := (*apierrors.StatusError)(nil); errors.As(err, &refusal) {
		refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", request.Namespace),
			Field:   "metadata.namespace",
		})
	}
	return err
}

// isAccessReview reports whether the request is an access review. A refusal would reveal whether
// the namespace exists to users who may not know that.
func isAccessReview(request *admission.Request) bool {
	return request.Resource.Group == "authorization.k8s.io" && request.Resource.Resource == "localsubjectaccessreviews"
}
