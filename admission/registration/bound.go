// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/meta"
)

// ErrOff says that a person has switched the webhook off.
var ErrOff = errors.New("the webhook is switched off by the annotation " + Annotation + "=" + AnnotationOff)

// Bound asks the API whether kube-apiserver calls the webhook, which nobody writes down
// before that was proved. It is nil if so, wraps ErrOff if a person does not want it, and
// says otherwise what is missing.
func Bound(ctx context.Context, client kubernetes.Interface) error {
	for k := range kinds {
		o, err := get(ctx, client, k)
		if err != nil {
			return fmt.Errorf("read the %s %s: %w", k, Name, err)
		}
		if o.found().off {
			return fmt.Errorf("%s %s: %w", k, Name, ErrOff)
		}
		if !slices.ContainsFunc(o.found().entries, func(e entry) bool { return e.Name != probeName }) {
			return fmt.Errorf("the %s %s binds no webhook yet", k, Name)
		}
	}
	return nil
}

// Unbound asks the API whether nothing is called any more, and says otherwise what is.
func Unbound(ctx context.Context, client kubernetes.Interface) error {
	for k := range kinds {
		o, err := get(ctx, client, k)
		if err != nil {
			return fmt.Errorf("read the %s %s: %w", k, Name, err)
		}
		if len(o.found().entries) > 0 {
			return fmt.Errorf("the %s %s still binds a webhook", k, Name)
		}
	}
	return nil
}

// Delete removes both configurations if they are switched off, so that nobody is there
// to make them again. It is no error if there are none.
func Delete(ctx context.Context, client kubernetes.Interface) error {
	// Both are looked at before the first is gone: either annotation stops all writing.
	var found [kinds]*object
	for k := range kinds {
		o, err := get(ctx, client, k)
		if err != nil {
			return fmt.Errorf("read the %s %s: %w", k, Name, err)
		}
		if o != nil && (!o.found().off || len(o.entries) > 0) {
			return fmt.Errorf("the %s %s is not switched off", k, Name)
		}
		found[k] = o
	}
	for k, o := range found {
		if o == nil {
			continue
		}
		if err := o.remove(ctx, client, kind(k)); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete the %s %s: %w", kind(k), Name, err)
		}
	}
	return nil
}

// remove deletes o if nobody has changed it since it was read.
func (o *object) remove(ctx context.Context, client kubernetes.Interface, k kind) error {
	options := metav1.DeleteOptions{Preconditions: meta.Preconditions(&o.meta)}
	if k == mutating {
		return client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, Name, options)
	}
	return client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, Name, options)
}
