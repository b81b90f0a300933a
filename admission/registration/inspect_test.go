// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

func TestActiveInactiveDelete(t *testing.T) {
	t.Parallel()
	const (
		mutating, validating = "the MutatingWebhookConfiguration " + Name, "the ValidatingWebhookConfiguration " + Name
		unbound, bound, on   = " binds no webhook yet", " still binds a webhook", " is not switched off"
	)
	cases := map[string]struct {
		mutating, validating      *object
		active, inactive, deleted string // what IsActive, IsInactive and Delete say; "" if they agree
	}{
		"None": {active: mutating + unbound},
		"Active": {
			mutating: stored("", mutateName), validating: stored("", validateName), inactive: mutating + bound, deleted: mutating + on,
		},
		"BeingProved": {
			mutating: stored("", probeName), validating: stored(""),
			active: mutating + unbound, inactive: mutating + bound, deleted: mutating + on,
		},
		"HalfActive": {
			mutating: stored("", mutateName), active: validating + unbound, inactive: mutating + bound, deleted: mutating + on,
		},
		"Off": {mutating: stored(AnnotationOff), validating: stored(AnnotationOff), active: ErrOff.Error()},
		"OffAndBound": {
			mutating: stored(AnnotationOff, mutateName), active: ErrOff.Error(), inactive: mutating + bound, deleted: mutating + on,
		},
		"OneIsOff": {
			mutating: stored(AnnotationOff), validating: stored("", validateName),
			active: ErrOff.Error(), inactive: validating + bound, deleted: validating + on,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if tc.mutating != nil {
				objects = append(objects, kind(0).typed(tc.mutating))
			}
			if tc.validating != nil {
				objects = append(objects, kind(1).typed(tc.validating))
			}
			client := fake.NewClientset(objects...)
			says(t, "IsActive", IsActive, client, tc.active)
			says(t, "IsInactive", IsInactive, client, tc.inactive)
			says(t, "Delete", Delete, client, tc.deleted)
			for _, action := range client.Actions() {
				if deletion, ok := action.(clienttesting.DeleteActionImpl); ok {
					testutil.Check(t, "preconditions", meta.Preconditions(&stored("").meta), deletion.DeleteOptions.Preconditions)
				}
			}
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
	testutil.CheckError(t, name, want, ask(t.Context(), client))
}

// stored is a configuration with an annotation and webhooks.
func stored(annotation string, webhooks ...string) *object {
	o := &object{meta: metav1.ObjectMeta{Name: Name, UID: "uid", ResourceVersion: "7"}}
	if annotation != "" {
		o.meta.Annotations = map[string]string{Annotation: annotation}
	}
	for _, name := range webhooks {
		o.entries = append(o.entries, entry{Name: name})
	}
	return o
}
