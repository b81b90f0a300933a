// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
)

// KeyRingName is the ConfigMap in kube-system in which the leader publishes what its key
// ring is, without any key.
const KeyRingName = "sa-controller-manager-key-ring"

// keepObject keeps everything of an object that is small and alone of its kind.
func keepObject(obj any) (any, error) { return obj, nil }

// trimNamespace keeps a Namespace's name and phase.
func trimNamespace(obj any) (any, error) {
	if namespace, ok := obj.(*corev1.Namespace); ok {
		namespace.ManagedFields, namespace.Annotations, namespace.Labels = nil, nil, nil
	}
	return obj, nil
}

// trimAccount keeps of a ServiceAccount's managedFields only what proves that a
// token controller wrote a reference.
func trimAccount(obj any) (any, error) {
	if account, ok := obj.(*corev1.ServiceAccount); ok {
		account.ManagedFields = tokensecrets.ReferenceWriters(account.ManagedFields)
	}
	return obj, nil
}

// observeTokenSecret keeps no bytes of a token. Like the others it must accept what it has
// returned before, because a resync passes through it again.
func observeTokenSecret(obj any) (any, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return obj, nil
	}
	return tokensecrets.Observe(secret), nil
}
