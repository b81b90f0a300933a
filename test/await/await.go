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
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sa-controller-manager/internal/testutil"
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

// Object is any API object.
type Object interface {
	runtime.Object
	metav1.Object
}

// Find returns the object of that name, or false.
func Find[T Object](objects []T, name string) (T, bool) {
	i := slices.IndexFunc(objects, func(o T) bool { return o.GetName() == name })
	if i < 0 {
		var none T
		return none, false
	}
	return objects[i], true
}

// Named passes when objects of all these names exist.
func Named[T Object](names ...string) Check[T] {
	return func(objects []T) error {
		for _, name := range names {
			if _, ok := Find(objects, name); !ok {
				return fmt.Errorf("%q does not exist", name)
			}
		}
		return nil
	}
}

// Gone passes when no object has one of these names.
func Gone[T Object](names ...string) Check[T] {
	return func(objects []T) error {
		for _, name := range names {
			if _, ok := Find(objects, name); ok {
				return fmt.Errorf("%q still exists", name)
			}
		}
		return nil
	}
}

// Every begins a call each interval until ctx ends, whether or not those before have returned. It
// returns when all of them have, and cancels none.
func Every(ctx context.Context, interval time.Duration, call func(ctx context.Context, i int)) {
	var calls sync.WaitGroup
	defer calls.Wait()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		calls.Go(func() { call(context.WithoutCancel(ctx), i) })
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// pollInterval is much shorter than the usual wait, and long enough to leave the processor to the
// processes under test.
const pollInterval = 50 * time.Millisecond

// Poll calls ask until it returns nil. Use it where there is no watch, such as for a metric or a
// file. After the end of ctx it returns the last error from before.
func Poll(ctx context.Context, ask func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error // not the error that the end of ctx causes
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// loadFactor is how much longer things may take in make test, where several packages share the
// machine. It still finds a wait for a timer of minutes.
const loadFactor = 5

// Within fails the test if something took longer than limit, the promise on an idle machine.
// make test-long checks the limit itself, make test a multiple of it.
func Within(t testing.TB, what string, took, limit time.Duration) {
	t.Helper()
	if testing.Short() {
		limit *= loadFactor
	}
	testutil.Expect(t, took <= limit, "%s took %v, want %v at most", what, took, limit)
}

// Long marks a test that takes more than ten seconds or so. make test skips it, make test-long runs
// it.
// A shorter test must cover parts of what it proves.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
}
