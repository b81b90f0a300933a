// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/faults/workload"
)

func TestJudgeReissue(t *testing.T) {
	t.Parallel()
	const active, former = "active", "retired"
	// secret is one of account "app" that a token controller made. replaces is the name of another one.
	secret := func(name, token, replaces string) *corev1.Secret {
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, UID: types.UID("uid-" + name),
				Labels:      map[string]string{workload.AutoCreatedLabel: "true"},
				Annotations: map[string]string{corev1.ServiceAccountUIDKey: "app-uid", corev1.ServiceAccountNameKey: "app"},
			},
			Type: corev1.SecretTypeServiceAccountToken,
			Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token)},
		}
		if replaces != "" {
			s.Annotations[workload.ReplacesLabel] = replaces + "/uid-" + replaces
		}
		return s
	}
	cases := map[string]struct {
		reason     string
		secrets    []*corev1.Secret
		references []string
		want       int
	}{
		"NothingRotated": {secrets: []*corev1.Secret{secret("a", active, "")}, references: []string{"a"}},

		"NotReplaced": {secrets: []*corev1.Secret{secret("a", former, "")}, references: []string{"a"}, want: 2},
		"NotLed":      {secrets: []*corev1.Secret{secret("a", former, ""), secret("b", active, "a")}, references: []string{"a"}, want: 1},
		"LedSecond":   {secrets: []*corev1.Secret{secret("a", former, ""), secret("b", active, "a")}, references: []string{"a", "b"}, want: 1},
		"ReplacedByTwo": {
			secrets: []*corev1.Secret{secret("a", former, ""), secret("b", active, "a"), secret("c", active, "a")}, references: []string{"b", "a"},
			want: 1,
		},
		"AnotherUID": {
			reason: "what was replaced is another one of that name",
			secrets: []*corev1.Secret{secret("a", former, ""), func() *corev1.Secret {
				s := secret("b", active, "a")
				s.Annotations[workload.ReplacesLabel] = "a/uid-older"
				return s
			}()},
			references: []string{"b", "a"}, want: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app", UID: "app-uid"}}
			for _, reference := range tc.references {
				account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: reference})
			}
			now := Snapshot{
				Accounts: map[types.NamespacedName]*corev1.ServiceAccount{Key("shop", "app"): account},
				Secrets:  map[types.NamespacedName]*corev1.Secret{},
			}
			for _, secret := range tc.secrets {
				now.Secrets[Key("shop", secret.Name)] = secret
			}
			found, _ := JudgeReissue(now, workload.Model{}, func(token string) bool { return token == former })
			if len(found) != tc.want || len(Of(found, 3)) != tc.want {
				t.Errorf("%s: %v, want %d of promise 3", tc.reason, found, tc.want)
			}
		})
	}
}
