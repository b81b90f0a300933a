// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/meta"
)

func annotatedWith(name, value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, name, value) }
}

func managedBy(manager, fields string) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		s.ManagedFields = append(s.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
}

func calledFor(secret, account string) func(*corev1.Secret) {
	return func(s *corev1.Secret) {
		s.Name = secret
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, corev1.ServiceAccountNameKey, account)
	}
}

func TestReissueMode(t *testing.T) {
	t.Parallel()
	const (
		created = `{"f:data":{".":{},"f:token":{}},"f:metadata":{},"f:type":{}}`
		filled  = `{"f:data":{"f:token":{}},"f:metadata":{}}`
	)
	marker := func(s *corev1.Secret) { metav1.SetMetaDataLabel(&s.ObjectMeta, AutoCreatedLabel, "true") }
	cases := map[string]struct {
		reason string
		change []func(*corev1.Secret)
		want   ReissueMode
	}{
		"UserMade":     {want: ReissueUserMade},
		"Marker":       {change: []func(*corev1.Secret){marker}, want: ReissueSideBySide},
		"CreatedByKCM": {change: []func(*corev1.Secret){managedBy("kube-controller-manager", created)}, want: ReissueSideBySide},
		"CreatedByUs": {
			reason: "and somebody took the marker off",
			change: []func(*corev1.Secret){managedBy(meta.FieldManager, created)}, want: ReissueSideBySide,
		},
		"FilledByKCM": {
			reason: "it fills those of users too",
			change: []func(*corev1.Secret){managedBy("kubectl-create", created), managedBy("kube-controller-manager", filled)}, want: ReissueUserMade,
		},
		"GeneratedNameOfAUser": {
			reason: "generateName makes the same names",
			change: []func(*corev1.Secret){calledFor("robot-token-x7k2p", "robot"), managedBy("kubectl-create", created), managedBy(meta.FieldManager, filled)},
			want:   ReissueUserMade,
		},
		"BrokenManagedFields": {change: []func(*corev1.Secret){managedBy("kube-controller-manager", `{"f:type"`)}, want: ReissueUserMade},
		"NamedAsByKCM": {
			reason: "users name Secrets like this too, and a replaced Secret is deleted one day",
			change: []func(*corev1.Secret){calledFor("robot-token-x7k2p", "robot")}, want: ReissueUserMade,
		},

		"AnnotatedSideBySide": {change: []func(*corev1.Secret){annotatedWith(ReissueAnnotation, "side-by-side")}, want: ReissueSideBySide},
		"AnnotatedNever":      {change: []func(*corev1.Secret){marker, annotatedWith(ReissueAnnotation, "never")}, want: ReissueNever},
		"AnnotatedGarbage": {
			reason: "what a person meant is not guessed",
			change: []func(*corev1.Secret){marker, annotatedWith(ReissueAnnotation, "Side-By-Side")}, want: ReissueUnknown,
		},
		"AnnotatedOurWord":  {change: []func(*corev1.Secret){annotatedWith(ReissueAnnotation, "user-made")}, want: ReissueUnknown},
		"AnnotatedWithNone": {change: []func(*corev1.Secret){marker, annotatedWith(ReissueAnnotation, "")}, want: ReissueSideBySide},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Observe(tokenSecret(tc.change...)).ReissueMode(); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestReplaces(t *testing.T) {
	t.Parallel()
	const of = "robot-token/secret-uid"
	cases := map[string]struct {
		reason     string
		annotation string
		change     func(*corev1.Secret)
		want       bool
	}{
		"Replaces":       {annotation: of, want: true},
		"AnotherName":    {annotation: "other/secret-uid"},
		"AnotherUID":     {reason: "it was deleted and made again", annotation: "robot-token/before"},
		"NoUID":          {annotation: "robot-token/"},
		"NoName":         {annotation: "/secret-uid"},
		"Garbage":        {annotation: "robot-token"},
		"Empty":          {annotation: ""},
		"AnotherAccount": {annotation: of, change: calledFor("new", "builder")},
		"AnotherNamespace": {
			annotation: of, change: func(s *corev1.Secret) { s.Namespace = "elsewhere" },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			successor := tokenSecret(annotatedWith(ReplacesAnnotation, tc.annotation), func(s *corev1.Secret) { s.Name, s.UID = "new", "uid-new" })
			if tc.change != nil {
				tc.change(successor)
			}
			if got := Observe(successor).Replaces(Observe(tokenSecret())); got != tc.want {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}
