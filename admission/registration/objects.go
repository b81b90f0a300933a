// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/meta"
)

// object is a configuration of either kind.
type object struct {
	exists  bool
	meta    metav1.ObjectMeta
	entries []entry
}

func (o *object) found() found {
	if o == nil {
		return found{}
	}
	return found{exists: true, off: o.meta.Annotations[Annotation] == AnnotationOff, entries: o.entries}
}

// with returns a copy that holds entries; a nil object becomes a new one.
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
		return copied
	}
	if copied.meta.Annotations == nil {
		copied.meta.Annotations = map[string]string{}
	}
	copied.meta.Annotations[Annotation] = value
	return copied
}

func fromMutating(c *admissionregistrationv1.MutatingWebhookConfiguration) *object {
	return &object{exists: true, meta: c.ObjectMeta, entries: c.Webhooks}
}

func fromValidating(c *admissionregistrationv1.ValidatingWebhookConfiguration) *object {
	o := &object{exists: true, meta: c.ObjectMeta}
	for _, webhook := range c.Webhooks {
		o.entries = append(o.entries, entry{
			Name: webhook.Name, ClientConfig: webhook.ClientConfig, Rules: webhook.Rules,
			FailurePolicy: webhook.FailurePolicy, MatchPolicy: webhook.MatchPolicy,
			NamespaceSelector: webhook.NamespaceSelector, ObjectSelector: webhook.ObjectSelector,
			SideEffects: webhook.SideEffects, TimeoutSeconds: webhook.TimeoutSeconds,
			AdmissionReviewVersions: webhook.AdmissionReviewVersions, MatchConditions: webhook.MatchConditions,
		})
	}
	return o
}

func (o *object) mutating() *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: o.meta, Webhooks: o.entries}
}

func (o *object) validating() *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: o.meta}
	for _, one := range o.entries {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
			Name: one.Name, ClientConfig: one.ClientConfig, Rules: one.Rules,
			FailurePolicy: one.FailurePolicy, MatchPolicy: one.MatchPolicy,
			NamespaceSelector: one.NamespaceSelector, ObjectSelector: one.ObjectSelector,
			SideEffects: one.SideEffects, TimeoutSeconds: one.TimeoutSeconds,
			AdmissionReviewVersions: one.AdmissionReviewVersions, MatchConditions: one.MatchConditions,
		})
	}
	return c
}

// get reads a configuration from the API, nil if there is none.
func get(ctx context.Context, client kubernetes.Interface, k kind) (*object, error) {
	if k == mutating {
		c, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return orError(fromMutating, c, err)
	}
	c, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return orError(fromValidating, c, err)
}

func orError[C any](from func(*C) *object, c *C, err error) (*object, error) {
	if err != nil {
		return nil, err
	}
	return from(c), nil
}

// put creates o if it does not exist and replaces it otherwise, if it still has the
// same resourceVersion.
func (o *object) put(ctx context.Context, client kubernetes.Interface, k kind) error {
	var err error
	mutatings := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	validatings := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	switch create := !o.exists; {
	case k == mutating && create:
		_, err = mutatings.Create(ctx, o.mutating(), metav1.CreateOptions{FieldManager: meta.FieldManager})
	case k == mutating:
		_, err = mutatings.Update(ctx, o.mutating(), metav1.UpdateOptions{FieldManager: meta.FieldManager})
	case create:
		_, err = validatings.Create(ctx, o.validating(), metav1.CreateOptions{FieldManager: meta.FieldManager})
	default:
		_, err = validatings.Update(ctx, o.validating(), metav1.UpdateOptions{FieldManager: meta.FieldManager})
	}
	return err
}
