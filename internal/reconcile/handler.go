// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import "k8s.io/client-go/tools/cache"

// OnEvery is a handler that calls found with each object that comes, changes or goes. Of one
// whose deletion the watch has missed that is the last state that was cached.
func OnEvery(found func(obj any)) cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    found,
		UpdateFunc: func(_, obj any) { found(obj) },
		DeleteFunc: OnDelete(found),
	}
}

// OnEveryName is OnEvery for handlers that need the name alone.
func OnEveryName(found func(name cache.ObjectName)) cache.ResourceEventHandlerFuncs {
	named := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			found(name)
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: named, UpdateFunc: func(_, obj any) { named(obj) }, DeleteFunc: named}
}

// OnDelete looks into the tombstone of a deletion that the watch has missed.
func OnDelete(found func(obj any)) func(obj any) {
	return func(obj any) {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		found(obj)
	}
}
