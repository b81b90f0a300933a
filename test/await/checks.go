// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is any API object.
type Object interface {
	runtime.Object
	metav1.Object
}

// Find returns the object of that name, or false.
func Find[T Object](objects []T, name string) (T, bool) {
	i := slices.IndexFunc(objects, func(o T) bool { return o.GetName() == name })
	if i < 0 {
		var none T
		return none, false
	}
	return objects[i], true
}

// Named passes when objects of all these names exist.
func Named[T Object](names ...string) Check[T] {
	return func(objects []T) error {
		for _, name := range names {
			if _, ok := Find(objects, name); !ok {
				return fmt.Errorf("%q does not exist", name)
			}
		}
		return nil
	}
}

// Gone passes when no object has one of these names.
func Gone[T Object](names ...string) Check[T] {
	return func(objects []T) error {
		for _, name := range names {
			if _, ok := Find(objects, name); ok {
				return fmt.Errorf("%q still exists", name)
			}
		}
		return nil
	}
}
