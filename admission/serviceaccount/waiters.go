// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/admission"
)

// errTooManyWaiters: as many requests are waiting already as may.
var errTooManyWaiters = errors.New("too many requests wait for service accounts and tokens")

// Waiters lets requests wait for what an informer has not shown yet. Every Wake of a
// name makes those who wait for it look again; nobody looks in between. It may be used
// by several goroutines.
type Waiters struct {
	limit   int
	metrics *Metrics

	mu      sync.Mutex
	entered int
	inside  map[string]int // of those, by namespace
	waiting map[cache.ObjectName]*waiter
}

// waiter is what all requests share that wait for the same name.
type waiter struct {
	count int
	woken chan struct{} // closed by Wake, and the waiter is gone then
}

// NewWaiters returns Waiters of whom nobody waits. The limit bounds the requests that wait or
// ask the apiserver at a time: an apiserver that does not answer, and calls about accounts
// that do not exist, cannot pile up here and take all that may be decided. Those of one
// namespace get a quarter of it: others go on while its Pods wait for tokens that nobody makes.
// Metrics may be nil.
func NewWaiters(limit int, metrics *Metrics) *Waiters {
	return &Waiters{limit: limit, metrics: metrics, inside: map[string]int{}, waiting: map[cache.ObjectName]*waiter{}}
}

// Wake makes those look again who wait for the account of that name, or for its token.
// What they look at must have changed before.
func (w *Waiters) Wake(name cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiter, ok := w.waiting[name]; ok {
		delete(w.waiting, name)
		close(waiter.woken)
	}
}

// enter counts a request in, if there is room for it. One that was let in must leave.
func (w *Waiters) enter(namespace string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entered >= w.limit || w.inside[namespace] >= max(1, w.limit/4) {
		return false
	}
	w.entered++
	w.inside[namespace]++
	w.metrics.setWaiting(w.entered)
	return true
}

func (w *Waiters) leave(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entered--
	if w.inside[namespace]--; w.inside[namespace] == 0 {
		delete(w.inside, namespace)
	}
	w.metrics.setWaiting(w.entered)
}

// await returns true once found does, false if ctx ends first. It asks found at once
// and then after every Wake of name. The caller has entered.
func (w *Waiters) await(ctx context.Context, name cache.ObjectName, found func() bool) bool {
	for {
		// To join before looking is what makes a Wake in between count.
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

// quit has one request wait no longer. The last one removes the waiter, unless Wake has.
func (w *Waiters) quit(name cache.ObjectName, joined *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	joined.count--
	if joined.count == 0 && w.waiting[name] == joined {
		delete(w.waiting, name)
	}
}

// tooManyWaiters is the refusal for errTooManyWaiters. Clients try again.
func tooManyWaiters() error {
	return admission.TooManyRequests(errTooManyWaiters.Error())
}

// Follow wakes the waiters of an account whenever informer shows something new about
// it, until stop is called. AccountOf says which account an object of the informer is
// about, if any; for an informer of accounts that is AccountItself.
func (w *Waiters) Follow(informer cache.SharedIndexInformer, accountOf func(object any) (cache.ObjectName, bool)) (stop func() error, err error) {
	wake := func(object any) {
		if name, ok := accountOf(object); ok {
			w.Wake(name)
		}
	}
	// A deletion is nothing that anybody waits for.
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    wake,
		UpdateFunc: func(_, object any) { wake(object) },
	})
	if err != nil {
		return nil, fmt.Errorf("follow an informer: %w", err)
	}
	return func() error { return informer.RemoveEventHandler(registration) }, nil
}

// AccountItself is the name of the ServiceAccount object.
func AccountItself(object any) (cache.ObjectName, bool) {
	account, err := meta.Accessor(object)
	if err != nil {
		return cache.ObjectName{}, false
	}
	return cache.MetaObjectToName(account), true
}
