// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package meta has what all reads and writes of objects share: the field manager of our writes, the
// preconditions of every write and deletion, and a cached and a live lookup of a ServiceAccount.
//
// Decisions use cached objects, which may be stale. kube-apiserver answers 409 to a write with
// another UID or resourceVersion than the object's, so a stale decision writes nothing.
package meta

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

// Field managers, as managedFields name them.
const (
	// FieldManager is the field manager of our writes.
	FieldManager = "sa-controller-manager"
	// UpstreamFieldManager is that of kube-controller-manager: the first part of its user agent.
	UpstreamFieldManager = "kube-controller-manager"
)

// Preconditions make a delete apply to this very version of the object.
func Preconditions(object metav1.Object) *metav1.Preconditions {
	return &metav1.Preconditions{UID: new(object.GetUID()), ResourceVersion: new(object.GetResourceVersion())}
}

// PatchMetadata is the metadata of a JSON or strategic merge patch that applies to one version
// of an object. A nil label or annotation is removed; those that are not named stay.
type PatchMetadata struct {
	UID             types.UID          `json:"uid"`
	ResourceVersion string             `json:"resourceVersion"`
	Labels          map[string]*string `json:"labels,omitempty"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
}

// PatchOf returns the metadata of a patch of this very version of the object.
func PatchOf(object metav1.Object) PatchMetadata {
	return PatchMetadata{UID: object.GetUID(), ResourceVersion: object.GetResourceVersion()}
}

// LiveAccount reads an account from kube-apiserver, because caches may be stale. It returns nil if
// there is none.
func LiveAccount(ctx context.Context, client kubernetes.Interface, name cache.ObjectName) (*corev1.ServiceAccount, error) {
	account, err := client.CoreV1().ServiceAccounts(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up service account %s: %w", name, err)
	}
	return account, nil
}

// CachedAccount returns the account in the cache, nil if there is none.
func CachedAccount(lister corev1listers.ServiceAccountLister, name cache.ObjectName) *corev1.ServiceAccount {
	account, err := lister.ServiceAccounts(name.Namespace).Get(name.Name)
	if err != nil {
		return nil // NotFound is a lister's only error
	}
	return account
}

// RetryWrite calls write until it succeeds, returns an error that is not retriable, or has been
// called as often as client-go does on conflicts, and returns the error of the last call.
// retry.OnError alone returns nil for a write that timed out: it takes that for its own timeout.
func RetryWrite(retriable func(error) bool, write func() error) error {
	var last error
	_ = retry.OnError(retry.DefaultBackoff, retriable, func() error {
		last = write()
		return last
	})
	return last
}

// ErrUnchanged is the error of a write that kube-apiserver has accepted and that has changed nothing.
var ErrUnchanged = errors.New("kube-apiserver accepted the change and stored nothing: " +
	"a mutating admission policy or webhook took it out again")

// CheckChanged returns ErrUnchanged if the answer to a write of an object is the version that was to be changed.
func CheckChanged(before, answer metav1.Object) error {
	if answer.GetUID() == before.GetUID() && answer.GetResourceVersion() == before.GetResourceVersion() {
		return ErrUnchanged
	}
	return nil
}
