// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

// patched returns the object with a patch applied.
func patched(before Object, how types.PatchType, patch []byte) (Object, error) {
	original := marshal(before)
	var changed []byte
	var err error
	switch how {
	case types.MergePatchType:
		changed, err = jsonpatch.MergePatch(original, patch)
	case types.StrategicMergePatchType:
		changed, err = strategicpatch.StrategicMergePatch(original, patch, reflect.ValueOf(before).Elem().Interface())
	case types.JSONPatchType:
		var decoded jsonpatch.Patch
		if decoded, err = jsonpatch.DecodePatch(patch); err == nil {
			changed, err = decoded.Apply(original)
		}
	default:
		err = fmt.Errorf("a patch of type %q is not supported", how)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	after := reflect.New(reflect.TypeOf(before).Elem()).Interface().(Object)
	if err := json.Unmarshal(changed, after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return after, nil
}

// equal reports whether a write changes nothing.
func equal(a, b Object) bool { return equality.Semantic.DeepEqual(a, b) }

// managers are kube-apiserver's own field managers, by kind.
var managers = sync.OnceValue(func() map[string]*managedfields.FieldManager {
	all := map[string]*managedfields.FieldManager{}
	types := applyconfigurations.NewTypeConverter(scheme.Scheme)
	for _, k := range kinds {
		manager, err := managedfields.NewDefaultFieldManager(
			types, scheme.Scheme, noDefaults{}, scheme.Scheme, k.gvk, k.gvk.GroupVersion(), "", nil)
		if err != nil {
			panic(err) // built-in types
		}
		all[k.gvk.Kind] = manager
	}
	return all
})

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// manage writes managedFields: who has changed which field.
func manage(k kind, before, after Object, manager string) Object {
	after.GetObjectKind().SetGroupVersionKind(k.gvk)
	if !k.managed {
		return after
	}
	var live runtime.Object
	if before == nil {
		empty, err := scheme.Scheme.New(k.gvk)
		if err != nil {
			panic(err)
		}
		empty.GetObjectKind().SetGroupVersionKind(k.gvk)
		live = empty
	} else {
		live = before.DeepCopyObject()
	}
	return managers()[k.gvk.Kind].UpdateNoErrors(live, after, manager).(Object)
}
