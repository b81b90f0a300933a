// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
