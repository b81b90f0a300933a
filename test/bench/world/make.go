// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Writers is how many clients write at a time. None of them is limited on its own side.
const Writers = 16

// madeLabel is on every Secret that the measurement makes.
const madeLabel = "bench"

// IsOurs reports whether the measurement, and not a token controller, has made the Secret.
func IsOurs(secret *corev1.Secret) bool { return secret.Labels[madeLabel] != "" }

// Each calls do for 0 to n-1, from Writers goroutines, in order. The first error ends it.
func (w *World) Each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range Writers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Namespace is the name of one of the measurement's namespaces.
func Namespace(i int) string { return fmt.Sprintf("bench-%05d", i) }

// MakeNamespace creates a namespace.
func (w *World) MakeNamespace(ctx context.Context, name string) error {
	_, err := w.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// MakeAccount creates a ServiceAccount.
func (w *World) MakeAccount(ctx context.Context, namespace, name string) error {
	_, err := w.Client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create account %s/%s: %w", namespace, name, err)
	}
	return nil
}

// MakeTokenSecret creates a token Secret that is to be filled.
func (w *World) MakeTokenSecret(ctx context.Context, namespace, name, account string, more map[string]string) error {
	annotations := map[string]string{corev1.ServiceAccountNameKey: account}
	maps.Copy(annotations, more)
	_, err := w.Client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{madeLabel: "token"}, Annotations: annotations},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create token Secret %s/%s: %w", namespace, name, err)
	}
	return nil
}

// MakeForeignSecret creates a Secret of the given size that concerns no token controller.
func (w *World) MakeForeignSecret(ctx context.Context, namespace, name string, content []byte) error {
	_, err := w.Client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{madeLabel: "foreign"}},
		Data:       map[string][]byte{"content": content},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create Secret %s/%s: %w", namespace, name, err)
	}
	return nil
}

// DeleteAccount deletes a ServiceAccount.
func (w *World) DeleteAccount(ctx context.Context, namespace, name string) error {
	if err := w.Client.CoreV1().ServiceAccounts(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete account %s/%s: %w", namespace, name, err)
	}
	return nil
}
