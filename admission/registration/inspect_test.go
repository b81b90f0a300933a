// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
)

func TestIsInactive(t *testing.T) {
	t.Parallel()
	const mutating, validating = "the MutatingWebhookConfiguration " + Name, "the ValidatingWebhookConfiguration " + Name
	for name, tc := range map[string]struct {
		mutating, validating *object
		want                 string
	}{
		"None":        {},
		"Active":      {mutating: stored("", mutateName), validating: stored("", validateName), want: mutating},
		"BeingProved": {mutating: stored("", probeName), validating: stored(""), want: mutating},
		"Off":         {mutating: stored(AnnotationOff), validating: stored(AnnotationOff)},
		"OffAndBound": {mutating: stored(AnnotationOff, mutateName), want: mutating},
		"OneIsOff":    {mutating: stored(AnnotationOff), validating: stored("", validateName), want: validating},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if tc.mutating != nil {
				objects = append(objects, kind(0).typed(tc.mutating))
			}
			if tc.validating != nil {
				objects = append(objects, kind(1).typed(tc.validating))
			}
			if tc.want != "" {
				tc.want += " still binds a webhook"
			}
			testutil.CheckError(t, name, tc.want, IsInactive(t.Context(), fake.NewClientset(objects...)))
		})
	}
}

// What cannot be read is not inactive.
func TestIsInactiveWithoutAPI(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("get", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("boom")
	})
	testutil.CheckError(t, "", "read the ValidatingWebhookConfiguration 00-sa-controller-manager: boom", IsInactive(t.Context(), client))
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
