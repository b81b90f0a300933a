// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
)

func TestForbiddenByMode(t *testing.T) {
	t.Parallel()
	const (
		created = `{"f:data":{".":{},"f:token":{}},"f:metadata":{},"f:type":{}}`
		filled  = `{"f:data":{"f:token":{}},"f:metadata":{}}`
	)
	marker, writtenBy := controllertest.AutoCreated, controllertest.WrittenBy
	called := func(name string) func(*corev1.Secret) { return func(s *corev1.Secret) { s.Name = name } }
	cases := map[string]struct {
		reason string
		change []func(*corev1.Secret)
		want   Reason
	}{
		"UserMade":     {want: UserMade},
		"Marker":       {change: []func(*corev1.Secret){marker}},
		"CreatedByKCM": {change: []func(*corev1.Secret){writtenBy("kube-controller-manager", created)}},
		"CreatedByUs": {
			reason: "and somebody took the marker off",
			change: []func(*corev1.Secret){writtenBy(meta.FieldManager, created)},
		},
		"FilledByKCM": {
			reason: "it fills those of users too",
			change: []func(*corev1.Secret){writtenBy("kubectl-create", created), writtenBy("kube-controller-manager", filled)}, want: UserMade,
		},
		"GeneratedNameOfAUser": {
			reason: "generateName makes the same names",
			change: []func(*corev1.Secret){called("app-token-x7k2p"), writtenBy("kubectl-create", created), writtenBy(meta.FieldManager, filled)},
			want:   UserMade,
		},
		"BrokenManagedFields": {change: []func(*corev1.Secret){writtenBy("kube-controller-manager", `{"f:type"`)}, want: UserMade},
		"NamedAsByKCM": {
			reason: "users name Secrets like this too, and a replaced Secret is deleted one day",
			change: []func(*corev1.Secret){called("app-token-x7k2p")}, want: UserMade,
		},

		"AnnotatedSideBySide": {change: []func(*corev1.Secret){mode("side-by-side")}},
		"AnnotatedNever":      {change: []func(*corev1.Secret){marker, mode("never")}, want: Never},
		"AnnotatedGarbage": {
			reason: "what a person meant is not guessed",
			change: []func(*corev1.Secret){marker, mode("Side-By-Side")}, want: UnknownMode,
		},
		"AnnotatedOurWord":  {change: []func(*corev1.Secret){mode("user-made")}, want: UnknownMode},
		"AnnotatedWithNone": {change: []func(*corev1.Secret){marker, mode("")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := forbiddenByMode(tokensecrets.Observe(controllertest.TokenSecret("a", tc.change...))); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
