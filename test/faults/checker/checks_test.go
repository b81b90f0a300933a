// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

func TestJudgeWrites(t *testing.T) {
	t.Parallel()
	begun := time.Unix(1000, 0)
	at := func(seconds float64, r faultproxy.Request) faultproxy.Request {
		r.Began = begun.Add(time.Duration(seconds * float64(time.Second)))
		return r
	}
	renewal := faultproxy.Request{Verb: "update", Resource: "leases", Name: workload.LeaseName, Code: 200, Served: 200}
	lost := faultproxy.Request{Verb: "update", Resource: "leases", Name: workload.LeaseName, Code: 0, Served: 200}
	write := faultproxy.Request{Verb: "patch", Resource: "secrets", Namespace: "shop", Name: "s", Served: 200}
	leaders := func(verb, resource, namespace, name string) faultproxy.Request {
		return faultproxy.Request{Verb: verb, Resource: resource, Namespace: namespace, Name: name, Served: 200}
	}
	const deadline = 3 * time.Second
	cases := map[string]struct {
		reason  string
		journal []faultproxy.Request
		want    int
	}{
		"InTime": {journal: []faultproxy.Request{at(0, renewal), at(2.9, write)}},
		"Late":   {journal: []faultproxy.Request{at(0, renewal), at(3.4, write)}, want: 1},
		"RenewalUnseen": {
			reason: "the process never had the answer", journal: []faultproxy.Request{at(0, renewal), at(2, lost), at(4.5, write)}, want: 1,
		},
		"PatchAtAPause": {reason: "its precondition held", journal: []faultproxy.Request{at(0, renewal), at(8.05, write)}, want: 1},
		"AfterAPause": {
			reason:  "it asked afterwards",
			journal: []faultproxy.Request{at(0, renewal), at(8.6, leaders("create", "configmaps", "shop", ""))},
			want:    1,
		},
		"NeverLed": {journal: []faultproxy.Request{at(0, write)}, want: 1},

		"Account": {
			reason: "nobody waits for it", journal: []faultproxy.Request{at(0, leaders("create", "serviceaccounts", "shop", ""))}, want: 1,
		},
		"Reference": {journal: []faultproxy.Request{at(0, leaders("patch", "serviceaccounts", "pods", "default"))}, want: 1},
		"Mutating": {
			journal: []faultproxy.Request{at(0, leaders("update", "mutatingwebhookconfigurations", "", workload.ConfigurationName))},
			want:    1,
		},
		"Validating": {journal: []faultproxy.Request{at(0, leaders("create", "validatingwebhookconfigurations", "", ""))}, want: 1},
		"RootCA": {
			journal: []faultproxy.Request{at(0, leaders("update", "configmaps", "kube-system", workload.RootCAConfigMap))}, want: 1,
		},
		"StateOfRootCA": {
			journal: []faultproxy.Request{at(0, leaders("update", "secrets", "kube-system", "sa-controller-manager-root-ca"))}, want: 1,
		},
		"ConfigMap": {journal: []faultproxy.Request{at(0, leaders("create", "configmaps", "kube-system", ""))}, want: 1},
		"TokenOfTheSystem": {
			journal: []faultproxy.Request{at(0, leaders("patch", "secrets", "kube-system", "default-token-abcde"))}, want: 1,
		},
	}
	asked := func(namespace string) bool { return namespace == "pods" }
	resumed := []time.Time{begun.Add(8 * time.Second)}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, found := JudgeWrites(tc.journal, deadline, asked, resumed)
			testutil.Expect(t, len(found) == tc.want, "%s: %v, want %d", tc.reason, found, tc.want)
		})
	}
}

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
	for name, tc := range map[string]struct {
		reason     string
		secrets    []*corev1.Secret
		references []string
		want       int
	}{
		"NothingRotated": {secrets: []*corev1.Secret{secret("a", active, "")}, references: []string{"a"}},

		"NotReplaced": {secrets: []*corev1.Secret{secret("a", former, "")}, references: []string{"a"}, want: 2},
		"NotLed":      {secrets: []*corev1.Secret{secret("a", former, ""), secret("b", active, "a")}, references: []string{"a"}, want: 1},
		"LedSecond": {
			secrets: []*corev1.Secret{secret("a", former, ""), secret("b", active, "a")}, references: []string{"a", "b"}, want: 1,
		},
		"ReplacedByTwo": {
			secrets:    []*corev1.Secret{secret("a", former, ""), secret("b", active, "a"), secret("c", active, "a")},
			references: []string{"b", "a"},
			want:       1,
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
	} {
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
			testutil.Expect(t, len(found) == tc.want && len(Of(found, 3)) == tc.want, "%s: %v, want %d of promise 3", tc.reason, found,
				tc.want)
		})
	}
}
