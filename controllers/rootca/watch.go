// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/reconcile"
)

// changeDelay is how long after a change of the state, be it our own, it is compared with
// what it should be. It bounds what two writers that undo each other's work cost: a GET and
// a PUT in this time.
const changeDelay = 5 * time.Second

// newInformer watches the state's ConfigMap alone. It says only when to sync, which reads
// the state live: the watch may not show yet what a previous leader has written.
func (c *BundleController) newInformer() (cache.SharedIndexInformer, error) {
	informer := informers.NewFilteredConfigMapInformer(c.Client, StateNamespace, 0, cache.Indexers{}, reconcile.OnlyNamed(StateName))
	if err := informer.SetTransform(onlyMetadata); err != nil {
		return nil, err
	}
	_, err := informer.AddEventHandler(reconcile.OnEvery(func(any) { c.queue.AddAfter(StateName, changeDelay) }))
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
