// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// secretOf is a Secret of the account robot, with changes made to it.
func secretOf(name string, changes ...func(*TokenSecret)) *TokenSecret {
	secret := &TokenSecret{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
		AccountName: "robot", AccountUID: accountUID,
	}
	for _, change := range changes {
		change(secret)
	}
	return secret
}

func labelled(label string) func(*TokenSecret) {
	return func(s *TokenSecret) {
		s.Labels = maps.Clone(s.Labels)
		metav1.SetMetaDataLabel(&s.ObjectMeta, label, "true")
	}
}

func createdAt(second int64) func(*TokenSecret) {
	return func(s *TokenSecret) { s.CreationTimestamp = metav1.Unix(second, 0) }
}

// referencing is the account robot with these references.
func referencing(names ...string) *corev1.ServiceAccount {
	robot := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "robot", UID: accountUID}}
	for _, name := range names {
		robot.Secrets = append(robot.Secrets, corev1.ObjectReference{Name: name})
	}
	return robot
}

func TestOwn(t *testing.T) {
	t.Parallel()
	ours := labelled(AutoCreatedLabel)
	replacement := func(secret *TokenSecret) *TokenSecret {
		if secret.Name == "replaced" {
			return secretOf("b")
		}
		return nil
	}
	cases := map[string]struct {
		reason     string
		references []string
		secrets    []*TokenSecret
		want       string
	}{
		"None": {references: []string{"gone"}},
		"Referenced": {
			reason:     "the creator does not matter",
			references: []string{"a"},
			secrets:    []*TokenSecret{secretOf("a")},
			want:       "a",
		},
		"NotReferenced": {
			reason:  "our marker alone does not make it the account's",
			secrets: []*TokenSecret{secretOf("a", ours)},
		},
		"MarkedInvalid": {
			reason:     "kube-apiserver refuses its token, so the account needs another one",
			references: []string{"a"},
			secrets:    []*TokenSecret{secretOf("a", ours, labelled(InvalidSinceLabel))},
		},
		"Terminating": {
			references: []string{"a"},
			secrets:    []*TokenSecret{secretOf("a", func(s *TokenSecret) { s.DeletionTimestamp = new(metav1.Now()) })},
		},
		"OfAnEarlierAccount": {
			references: []string{"a"},
			secrets:    []*TokenSecret{secretOf("a", func(s *TokenSecret) { s.AccountUID = "other" })},
		},
		"OursFirst": {
			reason:     "then the older one may go once it is unused",
			references: []string{"a", "b"},
			secrets:    []*TokenSecret{secretOf("a", createdAt(1)), secretOf("b", createdAt(2), ours)},
			want:       "b",
		},
		"OldestFirst": {
			reason:     "the answer does not change when a younger one comes",
			references: []string{"a", "b", "c"},
			secrets:    []*TokenSecret{secretOf("c", createdAt(2), ours), secretOf("a", createdAt(3), ours), secretOf("b", createdAt(2), ours)},
			want:       "b",
		},
		"Replaced": {
			reason:     "a re-issued Secret gives way, or it would stay forever",
			references: []string{"replaced", "b"},
			secrets:    []*TokenSecret{secretOf("replaced", createdAt(1), ours), secretOf("b", createdAt(2), ours)},
			want:       "b",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for range 2 { // whatever their order
				got := ""
				if own := Own(referencing(tc.references...), tc.secrets, replacement); own != nil {
					got = own.Name
				}
				if got != tc.want {
					t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
				}
				slices.Reverse(tc.secrets)
			}
		})
	}
}
