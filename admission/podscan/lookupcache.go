// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/admission/registration"
)

// lookupCache reads the objects besides the Pod that classification needs, each once. The process's
// informer of accounts is not enough: it keeps little of their managedFields.
type lookupCache struct {
	client     kubernetes.Interface
	selector   labels.Selector
	namespaces map[string]bool // covered or not
	accounts   map[cache.ObjectName]*corev1.ServiceAccount
}

func newLookupCache(ctx context.Context, client kubernetes.Interface) (*lookupCache, error) {
	selector, err := registration.NamespaceSelector(ctx, client)
	if err != nil {
		return nil, err
	}
	return &lookupCache{
		client: client, selector: selector,
		namespaces: map[string]bool{}, accounts: map[cache.ObjectName]*corev1.ServiceAccount{},
	}, nil
}

// covered reports whether the webhook is called for Pods of the namespace.
func (c *lookupCache) covered(ctx context.Context, name string) (bool, error) {
	if c.selector.Empty() {
		return true, nil
	}
	if covered, known := c.namespaces[name]; known {
		return covered, nil
	}
	namespace, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("read namespace %s: %w", name, err)
	}
	// The Pods of a deleted namespace are gone too.
	c.namespaces[name] = err == nil && c.selector.Matches(labels.Set(namespace.Labels))
	return c.namespaces[name], nil
}

// account returns nil if there is none of that name.
func (c *lookupCache) account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	key := cache.NewObjectName(namespace, name)
	if account, known := c.accounts[key]; known {
		return account, nil
	}
	account, err := c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		account, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read service account %s: %w", key, err)
	}
	c.accounts[key] = account
	return account, nil
}
