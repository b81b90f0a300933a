// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestActiveInactiveDelete(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		mutating, validating *object
		active               string // what IsActive says; "" if it is
		inactive             string
		deleted              string
	}{
		"None": {
			active: "the MutatingWebhookConfiguration 00-sa-controller-manager binds no webhook yet",
		},
		"Active": {
			mutating: stored("", mutateName), validating: stored("", validateName),
			inactive: "the MutatingWebhookConfiguration 00-sa-controller-manager still binds a webhook",
			deleted:  "the MutatingWebhookConfiguration 00-sa-controller-manager is not switched off",
		},
		"BeingProved": {
			mutating: stored("", probeName), validating: stored(""),
			active:   "the MutatingWebhookConfiguration 00-sa-controller-manager binds no webhook yet",
			inactive: "the MutatingWebhookConfiguration 00-sa-controller-manager still binds a webhook",
			deleted:  "the MutatingWebhookConfiguration 00-sa-controller-manager is not switched off",
		},
		"HalfActive": {
			mutating: stored("", mutateName),
			active:   "the ValidatingWebhookConfiguration 00-sa-controller-manager binds no webhook yet",
			inactive: "the MutatingWebhookConfiguration 00-sa-controller-manager still binds a webhook",
			deleted:  "the MutatingWebhookConfiguration 00-sa-controller-manager is not switched off",
		},
		"Off": {
			mutating: stored(AnnotationOff), validating: stored(AnnotationOff),
			active: ErrOff.Error(),
		},
		"OneIsOff": {
			mutating: stored(AnnotationOff), validating: stored("", validateName),
			active:   ErrOff.Error(),
			inactive: "the ValidatingWebhookConfiguration 00-sa-controller-manager still binds a webhook",
			deleted:  "the ValidatingWebhookConfiguration 00-sa-controller-manager is not switched off",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if tc.mutating != nil {
				objects = append(objects, tc.mutating.mutating())
			}
			if tc.validating != nil {
				objects = append(objects, tc.validating.validating())
			}
			client := fake.NewClientset(objects...)
			says(t, "IsActive", IsActive, client, tc.active)
			says(t, "IsInactive", IsInactive, client, tc.inactive)
			says(t, "Delete", Delete, client, tc.deleted)
			left := 0
			for k := range kinds {
				if o, err := k.in(client).get(t.Context()); err != nil || o != nil {
					left++
				}
			}
			if kept := len(objects); tc.deleted == "" && left != 0 || tc.deleted != "" && left != kept {
				t.Errorf("%d of %d configurations are left", left, kept)
			}
		})
	}
}

// What cannot be read is neither active nor gone.
func TestActiveWithoutAPI(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("get", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("boom")
	})
	for name, ask := range map[string]func(context.Context, kubernetes.Interface) error{"IsInactive": IsInactive, "Delete": Delete} {
		says(t, name, ask, client, "read the ValidatingWebhookConfiguration 00-sa-controller-manager: boom")
	}
}

func says(t *testing.T, name string, ask func(context.Context, kubernetes.Interface) error, client kubernetes.Interface, want string) {
	t.Helper()
	err := ask(t.Context(), client)
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", name, err, want)
	}
}

// stored is a configuration with an annotation and webhooks.
func stored(annotation string, webhooks ...string) *object {
	o := &object{meta: metav1.ObjectMeta{Name: Name}}
	if annotation != "" {
		o.meta.Annotations = map[string]string{Annotation: annotation}
	}
	for _, name := range webhooks {
		o.entries = append(o.entries, entry{Name: name})
	}
	return o
}
