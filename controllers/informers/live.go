// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// LiveAccount asks the apiserver itself, because the caches of a View may be late; nil means
// that there is no such account.
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
