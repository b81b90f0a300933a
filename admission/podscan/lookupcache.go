// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// lookupCache reads the objects besides the Pod that classification needs, each once. The process's
// informer of accounts is not enough: it keeps little of their managedFields.
type lookupCache struct {
	client   kubernetes.Interface
	accounts map[cache.ObjectName]*corev1.ServiceAccount
}

func newLookupCache(client kubernetes.Interface) *lookupCache {
	return &lookupCache{client: client, accounts: map[cache.ObjectName]*corev1.ServiceAccount{}}
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
