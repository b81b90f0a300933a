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
	"time"

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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

func (t *table) get(namespace, name string) (*version, error) {
	if v := t.objects[types.NamespacedName{Namespace: namespace, Name: name}]; v != nil {
		return v, nil
	}
	return nil, apierrors.NewNotFound(t.resource, name)
}

func (s *Server) create(t *table, object Object, manager string) (*version, error) {
	s.made++
	if object.GetName() == "" {
		object.SetName(fmt.Sprintf("%s%05d", object.GetGenerateName(), s.made))
	}
	name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
	if t.objects[name] != nil {
		return nil, apierrors.NewAlreadyExists(t.resource, name.Name)
	}
	if name.Namespace != "" {
		v, err := s.tables["namespaces"].get("", name.Namespace)
		if err != nil {
			return nil, err
		}
		if v.object.(*corev1.Namespace).Status.Phase == corev1.NamespaceTerminating {
			err := apierrors.NewForbidden(t.resource, name.Name, fmt.Errorf("namespace %s is being terminated", name.Namespace))
			err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
			return nil, err
		}
	}
	if namespace, ok := object.(*corev1.Namespace); ok {
		namespace.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		namespace.Status.Phase = corev1.NamespaceActive
	}
	object, err := s.admit(t, nil, object)
	if err != nil {
		return nil, err
	}
	if err := valid(object, nil); err != nil {
		return nil, err
	}
	object.SetUID(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", s.made)))
	object.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	object.SetDeletionTimestamp(nil)
	object.SetGeneration(0)
	object.SetResourceVersion("")
	object.SetManagedFields(nil)
	return s.commit(t, nil, manage(t.kind, nil, object, manager)), nil
}

// update replaces an object by what change returns, if that has the UID and the version of the present one, or none.
func (s *Server) update(t *table, namespace, name, manager string, change func(Object) (Object, error)) (*version, error) {
	v, err := t.get(namespace, name)
	if err != nil {
		return nil, err
	}
	object, err := change(v.object.DeepCopyObject().(Object))
	if err != nil {
		return nil, err
	}
	if uid := object.GetUID(); uid != "" && uid != v.object.GetUID() {
		return nil, conflict(t, name,
			fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, v.object.GetUID()))
	}
	if of := object.GetResourceVersion(); of != "" && of != v.object.GetResourceVersion() {
		return nil, conflict(t, name, "the object has been modified; please apply your changes to the latest version and try again")
	}
	if object, err = s.admit(t, v.object, object); err != nil {
		return nil, err
	}
	if err := valid(object, v.object); err != nil {
		return nil, err
	}
	object.SetNamespace(namespace)
	object.SetUID(v.object.GetUID())
	object.SetCreationTimestamp(v.object.GetCreationTimestamp())
	object.SetDeletionTimestamp(v.object.GetDeletionTimestamp())
	object.SetResourceVersion(v.object.GetResourceVersion())
	object.GetObjectKind().SetGroupVersionKind(t.gvk)
	object.SetManagedFields(v.object.GetManagedFields())
	if equal(object, v.object) {
		return v, nil
	}
	next := s.commit(t, v, manage(t.kind, v.object, object, manager))
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 && t.gvk.Kind != "Namespace" {
		s.commit(t, next, nil)
	}
	return next, nil
}

func (s *Server) admit(t *table, before, after Object) (Object, error) {
	if s.Admit == nil || s.by == nil {
		return after, nil
	}
	return s.Admit(s.by, t.resource.Resource, before, after)
}

func conflict(t *table, name, why string) error {
	return apierrors.NewConflict(t.resource, name, fmt.Errorf("%s", why))
}

// valid has the rules of Secrets that a controller may break.
func valid(object, before Object) error {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return nil
	}
	for key, value := range secret.StringData {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[key] = []byte(value)
	}
	secret.StringData = nil
	if secret.Type == "" {
		secret.Type = corev1.SecretTypeOpaque
	}
	if secret.Type == corev1.SecretTypeServiceAccountToken && secret.Annotations[corev1.ServiceAccountNameKey] == "" {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, secret.Name, nil)
	}
	if before == nil {
		return nil
	}
	was := before.(*corev1.Secret)
	if was.Type != secret.Type || was.Immutable != nil && *was.Immutable && !equality.Semantic.DeepEqual(was.Data, secret.Data) {
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, secret.Name, nil)
	}
	return nil
}

func (s *Server) remove(t *table, r *Request) error {
	v, err := t.get(r.Namespace, r.Name)
	if err != nil {
		return err
	}
	var options metav1.DeleteOptions
	if len(r.Body) > 0 {
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, &options); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != v.object.GetUID() {
			return conflict(t, r.Name, fmt.Sprintf(
				"Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, v.object.GetUID()))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != v.object.GetResourceVersion() {
			return conflict(t, r.Name, "Precondition failed: ResourceVersion in precondition")
		}
	}
	if _, err := s.admit(t, v.object, nil); err != nil {
		return err
	}
	object := v.object.DeepCopyObject().(Object)
	namespace, is := object.(*corev1.Namespace)
	switch {
	case !is && len(object.GetFinalizers()) == 0:
		s.commit(t, v, nil)
		return nil
	case is && namespace.DeletionTimestamp != nil:
		return conflict(t, r.Name, "the system is ensuring all content is removed from this namespace")
	case is:
		namespace.Status.Phase = corev1.NamespaceTerminating
	case object.GetDeletionTimestamp() != nil:
		return nil
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	object.SetDeletionTimestamp(&now)
	s.commit(t, v, object)
	return nil
}

// Finalize removes a namespace, once it is empty.
func (s *Server) Finalize(name string) {
	t := s.tables["namespaces"]
	if v, err := t.get("", name); err == nil {
		s.commit(t, v, nil)
	}
}

// commit stores a new version and tells the watches; nil deletes the object.
func (s *Server) commit(t *table, before *version, object Object) *version {
	revision := &s.revision
	if t.resource.Resource == "events" {
		revision = &s.events
	}
	*revision++
	v := &version{object: object, revision: *revision, fresh: before == nil, deleted: object == nil}
	if v.deleted {
		v.object = before.object.DeepCopyObject().(Object)
	}
	v.object.SetResourceVersion(strconv.FormatInt(v.revision, 10))
	v.object.GetObjectKind().SetGroupVersionKind(t.gvk)
	name := types.NamespacedName{Namespace: v.object.GetNamespace(), Name: v.object.GetName()}
	if v.deleted {
		delete(t.objects, name)
	} else {
		t.objects[name] = v
	}
	t.history = append(t.history, v)
	if revision == &s.revision {
		t.log = append(t.log, v)
	}
	if s.Committed != nil {
		var old Object
		if before != nil {
			old = before.object
		}
		s.Committed(s.by, t.resource.Resource, old, object)
	}
	for _, w := range s.watches {
		if w.table == t && w.selects(v.object) {
			s.Push(w, w.event(v))
		}
	}
	return v
}

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
		ListMeta: metav1.ListMeta{ResourceVersion: of.GetResourceVersion(), Continue: of.GetContinue()},
	}
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
