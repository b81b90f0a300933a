// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package await waits until the API holds what a caller expects. It watches, so a
// wait ends within milliseconds of the event, and it checks the whole state each time, so
// that it can await absence as well as presence. Poll waits where there is no watch.
//
// The context alone bounds a wait. The error of a wait that fails says what was still missing.
package await

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Check gets all objects of a kind and returns what is still missing; nil ends the wait. It must
// not change the objects.
type Check[T runtime.Object] func(objects []T) error

// Secrets waits until the Secrets of a namespace pass the check.
func Secrets(ctx context.Context, client kubernetes.Interface, namespace string, check Check[*corev1.Secret]) ([]*corev1.Secret, error) {
	return objects(ctx, client, "secrets", namespace, &corev1.Secret{}, check)
}

// ServiceAccounts waits until the accounts of a namespace pass the check.
func ServiceAccounts(ctx context.Context, client kubernetes.Interface, namespace string,
	check Check[*corev1.ServiceAccount]) ([]*corev1.ServiceAccount, error) {
	return objects(ctx, client, "serviceaccounts", namespace, &corev1.ServiceAccount{}, check)
}

// ConfigMaps waits until the ConfigMaps of a namespace pass the check.
func ConfigMaps(ctx context.Context, client kubernetes.Interface, namespace string,
	check Check[*corev1.ConfigMap]) ([]*corev1.ConfigMap, error) {
	return objects(ctx, client, "configmaps", namespace, &corev1.ConfigMap{}, check)
}

// Pods waits until the Pods of a namespace, or of all if it is empty, pass the check.
func Pods(ctx context.Context, client kubernetes.Interface, namespace string, check Check[*corev1.Pod]) ([]*corev1.Pod, error) {
	return objects(ctx, client, "pods", namespace, &corev1.Pod{}, check)
}

// Namespaces waits until the cluster's namespaces pass the check.
func Namespaces(ctx context.Context, client kubernetes.Interface, check Check[*corev1.Namespace]) ([]*corev1.Namespace, error) {
	return objects(ctx, client, "namespaces", "", &corev1.Namespace{}, check)
}

func objects[T runtime.Object](ctx context.Context, client kubernetes.Interface, resource, namespace string, example T,
	check Check[T]) ([]T, error) {
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), resource, namespace, fields.Everything())
	found, err := Objects(ctx, lw, example, check)
	if err != nil {
		return nil, fmt.Errorf("await %s: %w", resource, err)
	}
	return found, nil
}

// Objects waits until the objects that lw lists pass the check, and returns
// them. They come from the cache of an informer that has ended when it returns, so the
// caller owns them.
func Objects[T runtime.Object](ctx context.Context, lw cache.ListerWatcher, example T, check Check[T]) ([]T, error) {
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: lw,
		ObjectType:    example,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { wake() },
			UpdateFunc: func(any, any) { wake() },
			DeleteFunc: func(any) { wake() },
		},
	})
	// The end of the wait cuts the watch, which the informer would log as an error.
	watching, stop := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(watching)
	}()
	defer func() { stop(); <-ended }()

	// Without the first complete list, absence would mean nothing.
	missing := errors.New("the first list has not arrived")
	synced := informer.HasSyncedChecker().Done()
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), missing)
		case <-changed:
		case <-synced:
			synced = nil
		}
		if synced != nil {
			continue
		}
		found := typed[T](store.List())
		if missing = check(found); missing == nil {
			return found, nil
		}
	}
}

// typed returns the objects with the type of their informer.
func typed[T any](objects []any) []T {
	list := make([]T, 0, len(objects))
	for _, object := range objects {
		list = append(list, object.(T))
	}
	return list
}
