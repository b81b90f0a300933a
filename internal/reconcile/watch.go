// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// Watch is an informer that RunWatching runs.
type Watch struct {
	Informer cache.SharedIndexInformer
	// Observe, if not nil, is called with each object that is added, changed or deleted, before
	// the key is queued.
	Observe func(obj any, deleted bool)
}

// OnlyNamed makes an informer watch the object of one name.
func OnlyNamed(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
}

// RunWatching is Run for a loop of a single key: every event of a watch queues it. The first
// sync begins once all watches have listed what there is. At the end a sync in progress is
// cancelled: the next one finds out what is left to do. RunWatching returns when the watches have
// ended too.
func (r *Runner[K]) RunWatching(ctx context.Context, key K, watches ...Watch) error {
	var watching sync.WaitGroup
	defer AwaitWatches(watching.Wait)
	synced := make([]cache.DoneChecker, len(watches))
	for i, watch := range watches {
		handler, err := watch.Informer.AddEventHandler(watch.handler(func() { r.AddIfRunning(key) }))
		if err != nil {
			return fmt.Errorf("watch for queue %s: %w", r.Name, err)
		}
		synced[i] = handler.HasSyncedChecker()
		watching.Go(func() { watch.Informer.RunWithContext(ctx) })
	}
	if !cache.WaitFor(ctx, "", synced...) {
		return nil
	}
	ending, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(ErrAtOnce) })()
	r.Add(key)
	r.Run(ending)
	return nil
}

func (w Watch) handler(queue func()) cache.ResourceEventHandlerFuncs {
	observed := func(obj any, deleted bool) {
		if w.Observe != nil {
			w.Observe(obj, deleted)
		}
		queue()
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { observed(obj, false) },
		UpdateFunc: func(_, obj any) { observed(obj, false) },
		DeleteFunc: OnDelete(func(obj any) { observed(obj, true) }),
	}
}

// Handled is a running informer and the handler of its events.
type Handled struct {
	What     string // the resource, for the error
	Informer cache.SharedIndexInformer
	Handler  cache.ResourceEventHandler
}

// WithHandlers calls run while the informers have their handlers. Adding one replays the whole
// cache to it. No handler is called before all are there: what one of them finds in the cache of another
// resource, and is deleted after that, is an event for the other handler. Run is called once they have had the
// whole replay, or ctx ends: a key that several objects queue is synced once.
func WithHandlers(ctx context.Context, run func(), handled ...Handled) (err error) {
	added := make(chan struct{})
	open := sync.OnceFunc(func() { close(added) })
	defer open()
	replayed := make([]cache.DoneChecker, len(handled))
	for i, h := range handled {
		registration, failed := h.Informer.AddEventHandler(gated{h.Handler, added})
		if failed != nil {
			return fmt.Errorf("watch %s: %w", h.What, failed)
		}
		defer func() { err = errors.Join(err, h.Informer.RemoveEventHandler(registration)) }()
		replayed[i] = registration.HasSyncedChecker()
	}
	open()
	cache.WaitFor(ctx, "", replayed...)
	run()
	return nil
}

// gated holds events back until a channel is closed.
type gated struct {
	cache.ResourceEventHandler

	open <-chan struct{}
}

func (g gated) OnAdd(obj any, initial bool) {
	<-g.open
	g.ResourceEventHandler.OnAdd(obj, initial)
}

func (g gated) OnUpdate(old, obj any) {
	<-g.open
	g.ResourceEventHandler.OnUpdate(old, obj)
}

func (g gated) OnDelete(obj any) {
	<-g.open
	g.ResourceEventHandler.OnDelete(obj)
}

// OnEvery returns a handler that calls found with each object that is added, changed or deleted. If
// the watch has missed a deletion, the object is its last cached state.
func OnEvery(found func(obj any)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    found,
		UpdateFunc: func(_, obj any) { found(obj) },
		DeleteFunc: OnDelete(found),
	}
}

// OnEveryName is OnEvery for handlers that need only the name.
func OnEveryName(found func(name cache.ObjectName)) cache.ResourceEventHandlerFuncs {
	named := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			found(name)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: named, UpdateFunc: func(_, obj any) { named(obj) }, DeleteFunc: named}
}

// OnChanges calls its handler for each change. For an object that has not changed, at the start and at
// a resync, it does so only if Due reports that there is work: mostly there is none, and a queue keeps
// the memory of all keys that it has held at the same time. Due is called on the handler's goroutine.
type OnChanges struct {
	cache.ResourceEventHandler
	Due func(obj any) bool
}

// OnAdd is cache.ResourceEventHandler's.
func (h OnChanges) OnAdd(obj any, initial bool) {
	if !initial || h.Due(obj) {
		h.ResourceEventHandler.OnAdd(obj, initial)
	}
}

// OnUpdate is cache.ResourceEventHandler's.
func (h OnChanges) OnUpdate(old, obj any) {
	if old.(metav1.Object).GetResourceVersion() != obj.(metav1.Object).GetResourceVersion() || h.Due(obj) {
		h.ResourceEventHandler.OnUpdate(old, obj)
	}
}

// OnDelete returns a handler that unwraps the tombstone of a deletion that the watch has missed.
func OnDelete(found func(obj any)) func(obj any) {
	return func(obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		found(obj)
	}
}
