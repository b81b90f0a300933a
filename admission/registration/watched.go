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

// watched is what the watches have told. The informers' stores will not do: they keep
// nothing of what was deleted, and an annotation just before it counts.
type watched struct {
	mu   sync.Mutex
	last [kinds]last
}

// last is what was last told of one configuration, and what it cannot tell once it is gone.
type last struct {
	object    *object // nil while there is none
	existed   bool    // it was there, so that it was deleted if it is not now
	off       bool    // its last state was switched off
	deleted   time.Time
	recreated time.Time // by us, because it was deleted
}

// forget keeps of all that was told only what there is.
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

// recreate is for a configuration that we have just created again: it was not deleted
// another time until the watch has told that it was there. What it says now counts
// until then.
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

// watch takes what an informer of a configuration observes.
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
		return fromMutating(c)
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		return fromValidating(c)
	default:
		return nil
	}
}
