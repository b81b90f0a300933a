// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"cmp"
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/admission"
)

// errTooManyWaiters rejects a request when the limit on waiting requests is reached.
var errTooManyWaiters = errors.New("too many requests are waiting for service accounts and tokens")

// Waiters lets requests wait until an informer has an account or a token. Wake makes the requests
// that wait for a name check again; there is no polling. It is safe for concurrent use.
type Waiters struct {
	limit   int
	metrics *Metrics

	mu      sync.Mutex
	entered int
	inside  map[string]int // entered by namespace
	waiting map[cache.ObjectName]*waiter
}

// waiter is shared by all requests that wait for the same name.
type waiter struct {
	count int
	woken chan struct{} // closed by Wake, which also removes the waiter
}

// NewWaiters returns empty Waiters. The limit bounds the requests that wait or ask the apiserver at
// the same time, so that a slow apiserver, or calls about accounts that do not exist, cannot use up
// all the calls that may be decided. One namespace may use a quarter of the limit, so that Pods
// that wait for tokens there do not block other namespaces. Metrics may be nil.
func NewWaiters(limit int, metrics *Metrics) *Waiters {
	return &Waiters{
		limit: limit, metrics: cmp.Or(metrics, NewMetrics(nil)), inside: map[string]int{}, waiting: map[cache.ObjectName]*waiter{},
	}
}

// Wake makes the requests check again that wait for the account of that name or for its token. The
// cache must have changed before.
func (w *Waiters) Wake(name cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiter, ok := w.waiting[name]; ok {
		delete(w.waiting, name)
		close(waiter.woken)
	}
}

// enter admits a request and reports whether the limits allow it. An admitted request must leave.
func (w *Waiters) enter(namespace string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entered >= w.limit || w.inside[namespace] >= max(1, w.limit/4) {
		return false
	}
	w.entered++
	w.inside[namespace]++
	w.metrics.waiting.Set(float64(w.entered))
	return true
}

func (w *Waiters) leave(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entered--
	if w.inside[namespace]--; w.inside[namespace] == 0 {
		delete(w.inside, namespace)
	}
	w.metrics.waiting.Set(float64(w.entered))
}

// await returns true once found does, false if ctx ends first. It calls found immediately and after
// every Wake of name. The caller has entered.
func (w *Waiters) await(ctx context.Context, name cache.ObjectName, found func() bool) bool {
	for {
		// Joining before the check ensures that no Wake is missed in between.
		joined := w.join(name)
		if found() {
			w.quit(name, joined)
			return true
		}
		select {
		case <-joined.woken:
		case <-ctx.Done():
			w.quit(name, joined)
			return false
		}
	}
}

func (w *Waiters) join(name cache.ObjectName) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting[name] == nil {
		w.waiting[name] = &waiter{woken: make(chan struct{})}
	}
	w.waiting[name].count++
	return w.waiting[name]
}

// quit removes one request. The last one removes the waiter, unless Wake has.
func (w *Waiters) quit(name cache.ObjectName, joined *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	joined.count--
	if joined.count == 0 && w.waiting[name] == joined {
		delete(w.waiting, name)
	}
}

// tooManyWaiters returns errTooManyWaiters as a refusal. Clients retry.
func tooManyWaiters() error {
	return admission.TooManyRequests(errTooManyWaiters.Error())
}

// Follow wakes the waiters of an account on every change that informer delivers. AccountOf returns the account of an
// object; for an informer of accounts it is AccountItself.
func (w *Waiters) Follow(informer cache.SharedIndexInformer, accountOf func(object any) cache.ObjectName) error {
	wake := func(object any) { w.Wake(accountOf(object)) }
	// No request waits for a deletion.
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    wake,
		UpdateFunc: func(_, object any) { wake(object) },
	})
	return err
}

// AccountItself returns the name of the ServiceAccount object.
func AccountItself(object any) cache.ObjectName {
	return cache.MetaObjectToName(object.(*corev1.ServiceAccount))
}
