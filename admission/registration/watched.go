// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/reconcile"
)

// last is the last known state of one configuration, and of its deletion. The informers' stores are not enough:
// they keep nothing of deleted objects, and an annotation just before a deletion counts.
type last struct {
	object  *object   // nil while there is none
	off     bool      // the last object had the annotation
	deleted time.Time // zero if it exists, or none was ever seen
}

// watch returns the watch of one configuration.
func (r *Registrar) watch(k kind, informer cache.SharedIndexInformer) reconcile.Watch {
	return reconcile.Watch{Informer: informer, Observe: func(obj any, deleted bool) {
		o := asObject(obj)
		if o == nil || o.meta.Name != Name {
			return
		}
		seen := last{object: o, off: o.isOff()}
		if deleted {
			seen.object, seen.deleted = nil, r.config.Clock.Now()
		}
		r.watched[k].Store(&seen)
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
