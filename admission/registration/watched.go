// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/reconcile"
)

// watched holds what the watches have delivered. The informers' stores are not enough: they keep
// nothing of deleted objects, and an annotation just before a deletion counts.
type watched struct {
	mu   sync.Mutex
	last [kinds]last
}

// last is the last known state of one configuration, and of its deletion.
type last struct {
	object    *object // nil while there is none
	existed   bool    // it existed, so it was deleted if object is nil
	off       bool    // the last object had the annotation
	deleted   time.Time
	recreated time.Time // by us, after a deletion
}

// forget drops all history and keeps the objects that exist.
func (w *watched) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, one := range w.last {
		w.last[k] = last{object: one.object, existed: one.object != nil, off: one.object.isOff()}
	}
}

func (w *watched) get() [kinds]last {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// recreate records that we have created a deleted configuration again. Until the watch delivers it,
// it does not count as deleted once more, and off holds.
func (w *watched) recreate(k kind, off bool, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last[k].object == nil {
		w.last[k] = last{off: off}
	}
	w.last[k].recreated = now
}

func (w *watched) set(k kind, object *object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[k] = last{object: object, existed: true, off: object.isOff(), recreated: w.last[k].recreated}
}

func (w *watched) remove(k kind, object *object, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[k] = last{existed: true, off: object.isOff(), deleted: now, recreated: w.last[k].recreated}
}

// watch returns the watch of one configuration.
func (r *Registrar) watch(k kind, informer cache.SharedIndexInformer) reconcile.Watch {
	return reconcile.Watch{Informer: informer, Observe: func(obj any, deleted bool) {
		o := asObject(obj)
		switch {
		case o == nil || o.meta.Name != Name:
		case deleted:
			r.watched.remove(k, o, r.config.Clock.Now())
		default:
			r.watched.set(k, o)
		}
	}}
}

func asObject(obj any) *object {
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		return &object{exists: true, meta: c.ObjectMeta, entries: c.Webhooks}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return &object{exists: true, meta: c.ObjectMeta, entries: converted[entry](c.Webhooks)}
	default:
		return nil
	}
}
