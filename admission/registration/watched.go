// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
)

// watched is what the watches have told. The informers' stores will not do: they keep
// nothing of what was deleted, and an annotation just before it counts.
type watched struct {
	mu   sync.Mutex
	last [kinds]last
}

// last is what was last told of one configuration.
type last struct {
	object  *object // nil while there is none
	existed bool    // it was there, so that it was deleted if it is not now
	off     bool    // its last state was switched off
	deleted time.Time
}

func (w *watched) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = [kinds]last{}
}

func (w *watched) get() [kinds]last {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// forget is for a configuration that we have just created again: it was not deleted
// another time until the watch has told that it was there. What it says now counts
// until then.
func (w *watched) forget(k kind, off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last[k].object == nil {
		w.last[k] = last{off: off}
	}
}

func (w *watched) set(k kind, object *object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[k] = last{object: object, existed: true, off: object.found().off}
}

func (w *watched) remove(k kind, object *object, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[k] = last{existed: true, off: object.found().off, deleted: now}
}

func (r *Registrar) handler(k kind) cache.ResourceEventHandler {
	tell := func(obj any, take func(*object)) {
		if object := asObject(obj); object != nil && object.meta.Name == Name {
			take(object)
		}
		r.queue.Add(Name)
	}
	set := func(o *object) { r.watched.set(k, o) }
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell(obj, set) },
		UpdateFunc: func(_, obj any) { tell(obj, set) },
		DeleteFunc: func(obj any) {
			tell(obj, func(o *object) { r.watched.remove(k, o, r.config.Clock.Now()) })
		},
	}
}

// asObject looks into tombstones too: their last known state is the best there is.
func asObject(obj any) *object {
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return fromMutating(c)
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return fromValidating(c)
	case cache.DeletedFinalStateUnknown:
		return asObject(c.Obj)
	default:
		return nil
	}
}
