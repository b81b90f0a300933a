// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/controllers/tokensecrets"
)

func TestOwn(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		references []string
		secrets    []*corev1.Secret
		want       string
	}{
		"None": {references: []string{"gone"}},
		"Referenced": {
			reason:     "whoever made it",
			references: []string{"a"},
			secrets:    []*corev1.Secret{tokenSecret("a", boundTo(testUID))},
			want:       "a",
		},
		"NotReferenced": {
			reason:  "our marker alone does not make it the account's",
			secrets: []*corev1.Secret{tokenSecret("a", boundTo(testUID), autoCreated)},
		},
		"MarkedInvalid": {
			reason:     "kube-apiserver refuses its token, so the account needs another one",
			references: []string{"a"},
			secrets:    []*corev1.Secret{tokenSecret("a", boundTo(testUID), autoCreated, invalidSince)},
		},
		"Terminating": {
			references: []string{"a"},
			secrets:    []*corev1.Secret{tokenSecret("a", boundTo(testUID), terminatingSecret)},
		},
		"OfAnEarlierAccount": {
			references: []string{"a"},
			secrets:    []*corev1.Secret{tokenSecret("a", boundTo(otherUID))},
		},
		"OursFirst": {
			reason:     "then the older one may go once it is unused",
			references: []string{"a", "b"},
			secrets: []*corev1.Secret{
				tokenSecret("a", boundTo(testUID), createdAt(1)),
				tokenSecret("b", boundTo(testUID), createdAt(2), autoCreated),
			},
			want: "b",
		},
		"OldestFirst": {
			reason:     "the answer does not change when a younger one comes",
			references: []string{"a", "b", "c"},
			secrets: []*corev1.Secret{
				tokenSecret("c", boundTo(testUID), createdAt(2), autoCreated),
				tokenSecret("a", boundTo(testUID), createdAt(3), autoCreated),
				tokenSecret("b", boundTo(testUID), createdAt(2), autoCreated),
			},
			want: "b",
		},
		"Successor": {
			reason:     "a re-issued Secret gives way, or it would stay for ever",
			references: []string{"a", "b"},
			secrets: []*corev1.Secret{
				tokenSecret("a", boundTo(testUID), createdAt(1), autoCreated),
				tokenSecret("b", boundTo(testUID), createdAt(2), autoCreated, replacing("a")),
			},
			want: "b",
		},
		"SuccessorOfASuccessor": {
			references: []string{"a", "b", "c"},
			secrets: []*corev1.Secret{
				tokenSecret("a", boundTo(testUID), createdAt(1), autoCreated),
				tokenSecret("b", boundTo(testUID), createdAt(2), autoCreated, replacing("a")),
				tokenSecret("c", boundTo(testUID), createdAt(3), autoCreated, replacing("b")),
			},
			want: "c",
		},
		"SuccessorNotReferenced": {
			reason:     "it is not in service yet",
			references: []string{"a"},
			secrets: []*corev1.Secret{
				tokenSecret("a", boundTo(testUID), createdAt(1), autoCreated),
				tokenSecret("b", boundTo(testUID), createdAt(2), autoCreated, replacing("a")),
			},
			want: "a",
		},
		"SuccessorMarkedInvalid": {
			references: []string{"a", "b"},
			secrets: []*corev1.Secret{
				tokenSecret("a", boundTo(testUID), createdAt(1), autoCreated),
				tokenSecret("b", boundTo(testUID), createdAt(2), autoCreated, replacing("a"), invalidSince),
			},
			want: "a",
		},
		"SuccessorOfOneThatIsGone": {
			references: []string{"b"},
			secrets:    []*corev1.Secret{tokenSecret("b", boundTo(testUID), autoCreated, replacing("a"))},
			want:       "b",
		},
		"NotToBeReplaced": {
			reason:     "the annotation counts more than what another Secret says",
			references: []string{"a", "b"},
			secrets: []*corev1.Secret{
				tokenSecret("a", boundTo(testUID), createdAt(1), autoCreated, func(s *corev1.Secret) {
					s.Annotations[tokensecrets.ReissueAnnotation] = string(tokensecrets.ReissueNever)
				}),
				tokenSecret("b", boundTo(testUID), createdAt(2), autoCreated, replacing("a")),
			},
			want: "a",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var secrets []*tokensecrets.TokenSecret
			for _, secret := range tc.secrets {
				secrets = append(secrets, tokensecrets.Observe(secret))
			}
			for range 2 { // whatever their order
				got := ""
				if own := Own(account(referencing(tc.references...)), secrets); own != nil {
					got = own.Name
				}
				if got != tc.want {
					t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
				}
				slices.Reverse(secrets)
			}
		})
	}
}

func replacing(name string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) {
		secret.Annotations[tokensecrets.ReplacesAnnotation] = tokensecrets.Predecessor{Name: name, UID: types.UID("uid-" + name)}.String()
	}
}
