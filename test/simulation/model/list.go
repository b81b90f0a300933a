// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

// selector is what a list or a watch selects.
type selector struct {
	namespace string
	fields    fields.Selector
	labels    labels.Selector
}

func selectorOf(r *Request) (selector, error) {
	byField, err := fields.ParseSelector(r.Query.Get("fieldSelector"))
	if err != nil {
		return selector{}, apierrors.NewBadRequest(err.Error())
	}
	byLabel, err := labels.Parse(r.Query.Get("labelSelector"))
	if err != nil {
		return selector{}, apierrors.NewBadRequest(err.Error())
	}
	return selector{r.Namespace, byField, byLabel}, nil
}

func (s selector) selects(object Object) bool {
	if s.namespace != "" && s.namespace != object.GetNamespace() {
		return false
	}
	if !s.fields.Empty() {
		set := fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace()}
		if secret, ok := object.(*corev1.Secret); ok {
			set["type"] = string(secret.Type)
		}
		if bundle, ok := object.(*certificatesv1.ClusterTrustBundle); ok {
			set["spec.signerName"] = bundle.Spec.SignerName
		}
		if !s.fields.Matches(set) {
			return false
		}
	}
	return s.labels.Empty() || s.labels.Matches(labels.Set(object.GetLabels()))
}

// cached is what the kube-apiserver of a client has in its watch cache.
func (s *Server) cached(client string) int64 {
	if s.Cached == nil {
		return s.revision
	}
	return s.Cached(client)
}

// list answers from the newest state, in pages if they are asked for, or from the watch cache, which may be too old.
func (s *Server) list(t *table, r *Request) (any, error) {
	selects, err := selectorOf(r)
	if err != nil {
		return nil, err
	}
	this := page{revision: s.revision}
	if from, err := strconv.ParseInt(r.Query.Get("resourceVersion"), 10, 64); err == nil {
		if this.revision = s.cached(r.Client); from > this.revision {
			return nil, tooLarge(from, this.revision)
		}
	}
	if token := r.Query.Get("continue"); token != "" {
		var known bool
		if this, known = s.pages[token]; !known {
			return nil, apierrors.NewResourceExpired("The provided continue parameter is too old")
		}
	} else {
		for _, v := range t.sorted(selects.namespace, this.revision) {
			if selects.selects(v.object) {
				this.rest = append(this.rest, v)
			}
		}
	}
	list, err := scheme.Scheme.New(t.gvk.GroupVersion().WithKind(t.gvk.Kind + "List"))
	if err != nil {
		return nil, err
	}
	access, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	access.SetResourceVersion(strconv.FormatInt(this.revision, 10))
	if limit, _ := strconv.Atoi(r.Query.Get("limit")); limit > 0 && limit < len(this.rest) && r.Query.Get("resourceVersion") != "0" {
		s.made++
		token := strconv.Itoa(s.made)
		s.pages[token] = page{this.revision, this.rest[limit:]}
		access.SetContinue(token)
		this.rest = this.rest[:limit]
	}
	if strings.Contains(r.Accept, "as=PartialObjectMetadataList") {
		return partial(access, this.rest), nil
	}
	var items []runtime.Object
	for _, v := range this.rest {
		items = append(items, v.object)
	}
	return list, meta.SetList(list, items)
}

// partial is a list of the metadata alone.
func partial(of metav1.ListInterface, rest []*version) document {
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
		ListMeta: metav1.ListMeta{ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue()}}
	for _, v := range rest {
		list.Items = append(list.Items,
			metav1.PartialObjectMetadata{ObjectMeta: *meta.AsPartialObjectMetadata(v.object).ObjectMeta.DeepCopy()})
	}
	return marshal(list)
}

func tooLarge(from, cached int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", from, cached), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version"}}
	return err
}

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
