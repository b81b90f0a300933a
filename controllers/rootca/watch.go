// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// lookAfterChange is when the state is compared with what it should be after the watch
// has told of a change, be it our own. It bounds what two that undo each other's work
// cost: a GET and a PUT in this time.
const lookAfterChange = 5 * time.Second

// newInformer watches the state's ConfigMap alone. It says only when to look: what is
// decided rests on a reading of its own, because the watch may lag behind what a former
// leader has written.
func (k *Keeper) newInformer() (cache.SharedIndexInformer, error) {
	informer := informers.NewFilteredConfigMapInformer(k.Client, StateNamespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, StateName).String()
	})
	if err := informer.SetTransform(onlyMetadata); err != nil {
		return nil, err
	}
	look := func() { k.loop.AddAfter(StateName, lookAfterChange) }
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { look() },
		UpdateFunc: func(any, any) { look() },
		DeleteFunc: func(any) { look() },
	})
	return informer, err
}

// onlyMetadata keeps of an object what an informer needs.
func onlyMetadata(obj any) (any, error) {
	object, ok := obj.(metav1.Object)
	if !ok {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
	}}, nil
}
