// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

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
