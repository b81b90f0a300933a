// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/meta"
)

// object is a configuration of either kind.
type object struct {
	exists  bool
	meta    metav1.ObjectMeta
	entries []entry
}

// isOff reports whether the annotation is set.
func (o *object) isOff() bool { return o != nil && o.meta.Annotations[Annotation] == AnnotationOff }

// webhooks returns the webhooks of o, none if it does not exist.
func (o *object) webhooks() []entry {
	if o == nil {
		return nil
	}
	return o.entries
}

// binds reports whether a webhook other than the probe is registered.
func (o *object) binds() bool { return binds(o.webhooks()) }

func binds(entries []entry) bool {
	return slices.ContainsFunc(entries, func(e entry) bool { return e.Name != probeName })
}

// with returns a copy of o with entries; for nil it returns a new object.
func (o *object) with(entries []entry) *object {
	if o == nil {
		return &object{meta: metav1.ObjectMeta{Name: Name}, entries: entries}
	}
	return &object{exists: o.exists, meta: *o.meta.DeepCopy(), entries: entries}
}

// annotated returns a copy with the annotation, or without it if value is empty.
func (o *object) annotated(value string) *object {
	copied := o.with(o.entries)
	if value == "" {
		delete(copied.meta.Annotations, Annotation)
	} else {
		metav1.SetMetaDataAnnotation(&copied.meta, Annotation, value)
	}
	return copied
}

// converted returns webhooks as those of the other kind, which has the same fields but reinvocationPolicy.
func converted[To, From any](webhooks []From) (result []To) {
	data, err := json.Marshal(webhooks)
	if err == nil {
		err = json.Unmarshal(data, &result)
	}
	if err != nil {
		panic(err) // they come from JSON
	}
	return result
}

// typed returns o as what the API and files have.
func (k kind) typed(o *object) runtime.Object {
	kind := metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: k.String()}
	if k == mutating {
		return &admissionregistrationv1.MutatingWebhookConfiguration{TypeMeta: kind, ObjectMeta: o.meta, Webhooks: o.entries}
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta: kind, ObjectMeta: o.meta, Webhooks: converted[admissionregistrationv1.ValidatingWebhook](o.entries),
	}
}

// api reads and writes one of the two configurations. Errors of get say what was read.
type api interface {
	// get returns nil if there is none.
	get(ctx context.Context) (*object, error)
	// put creates o, or replaces it if it has the same resourceVersion.
	put(ctx context.Context, o *object) error
}

// in returns the API of a kind of configuration.
func (k kind) in(client kubernetes.Interface) api {
	registrations := client.AdmissionregistrationV1()
	if k == mutating {
		return typed[*admissionregistrationv1.MutatingWebhookConfiguration]{registrations.MutatingWebhookConfigurations(), k}
	}
	return typed[*admissionregistrationv1.ValidatingWebhookConfiguration]{registrations.ValidatingWebhookConfigurations(), k}
}

// getAll reads both configurations, nil for one that does not exist.
func getAll(ctx context.Context, client kubernetes.Interface) (all [kinds]*object, err error) {
	for k := range kinds {
		if all[k], err = k.in(client).get(ctx); err != nil {
			return all, err
		}
	}
	return all, nil
}

// typed implements api with a typed client of client-go.
type typed[C any] struct {
	client interface {
		Get(ctx context.Context, name string, o metav1.GetOptions) (C, error)
		Create(ctx context.Context, c C, o metav1.CreateOptions) (C, error)
		Update(ctx context.Context, c C, o metav1.UpdateOptions) (C, error)
	}
	kind kind
}

func (t typed[C]) get(ctx context.Context) (*object, error) {
	c, err := t.client.Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the %s %s: %w", t.kind, Name, err)
	}
	return asObject(c), nil
}

func (t typed[C]) put(ctx context.Context, o *object) (err error) {
	c := t.kind.typed(o).(C) //nolint:forcetypeassert // in has matched them
	if o.exists {
		_, err = t.client.Update(ctx, c, metav1.UpdateOptions{FieldManager: meta.FieldManager})
	} else {
		_, err = t.client.Create(ctx, c, metav1.CreateOptions{FieldManager: meta.FieldManager})
	}
	return err
}
