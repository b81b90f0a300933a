// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

// palace is a namespace in which robot may do everything and servant nothing.
func palace(secret *corev1.Secret) *fake.Clientset {
	account := func(name string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}}
	}
	client := fake.NewClientset(account("robot"), account("servant"), secret)
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = review.Spec.User == "system:serviceaccount:shop:robot" && review.Spec.UID == "uid-robot"
		return true, review, nil
	})
	return client
}

// TestAnnotationsHideNothing: kube-apiserver goes by the claims of a token. Who may edit the Secret
// must not be able to have an administrator's token called harmless, or dead.
func TestAnnotationsHideNothing(t *testing.T) {
	t.Parallel()
	of := func(name, uid string) func(*corev1.Secret) {
		return func(secret *corev1.Secret) {
			secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: name, corev1.ServiceAccountUIDKey: uid}
		}
	}
	bare := func(secret *corev1.Secret) { secret.Annotations = nil }
	copied := holding(string(tokenSecret(t, "b", testkeys.P256()).Data["token"]))
	servant := of("servant", "uid-servant")
	cases := map[string]struct {
		reason    string
		key       []byte
		unchecked bool
		changes   []func(*corev1.Secret)
		want      string
	}{
		"in order": {"", testkeys.P256(), false, nil, "robot everything [cluster-admin unmounted unreferenced]"},
		"no name": {
			"", testkeys.P256(), false, []func(*corev1.Secret){of("Not a name", "uid-robot")},
			"robot everything [cluster-admin bad-token unmounted unreferenced]",
		},
		"nobody's name": {
			"", testkeys.P256(), false, []func(*corev1.Secret){of("nobody", "uid-robot")},
			"robot everything [cluster-admin bad-token unmounted unreferenced]",
		},
		"another's": {
			"", testkeys.P256(), false, []func(*corev1.Secret){servant}, "robot everything [cluster-admin bad-token unmounted unreferenced]",
		},
		"another UID": {
			"", testkeys.P256(), false, []func(*corev1.Secret){of("robot", "uid-former")}, "robot everything [cluster-admin unmounted unreferenced]",
		},
		"none": {
			"", testkeys.P256(), false, []func(*corev1.Secret){bare}, "robot everything [cluster-admin bad-token unmounted unreferenced]",
		},
		"respelled": {
			"kube-apiserver compares it with what is presented, and does not mind the spelling", testkeys.P256(), false,
			[]func(*corev1.Secret){servant, respell}, "robot everything [cluster-admin bad-token unmounted unreferenced]",
		},
		"spaced": {
			"likewise", testkeys.P256(), false, []func(*corev1.Secret){servant, space},
			"robot everything [cluster-admin bad-token unmounted unreferenced]",
		},
		"keys are unchecked": {
			"kube-apiserver need not show its keys", testkeys.P256(), true, []func(*corev1.Secret){servant},
			"robot everything [cluster-admin bad-token unmounted unreferenced]",
		},
		"key is unknown": {
			"the flags need not name all of kube-apiserver's", testkeys.P521(), false, []func(*corev1.Secret){servant},
			"robot everything [cluster-admin bad-token unknown-key unmounted unreferenced]",
		},
		"forged": {
			"what it claims is worth nothing", testkeys.P256(), false, []func(*corev1.Secret){servant, tampered},
			"servant  [bad-token orphan unmounted unreferenced]",
		},
		"of another Secret": {
			"that one tells", testkeys.P256(), false, []func(*corev1.Secret){servant, copied}, "servant  [bad-token orphan unmounted unreferenced]",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			auditor := &Auditor{
				Client: palace(tokenSecret(t, "a", tc.key, tc.changes...)), Keys: testKeys(t), Rules: Rules{Now: now, UnusedFor: year}, Reach: true,
			}
			if tc.unchecked {
				auditor.Keys = nil
			}
			var got []string
			if _, err := auditor.Run(t.Context(), func(rows []Row) error {
				for i := range rows {
					got = append(got, fmt.Sprintf("%s %s %s", rows[i].Account, rows[i].Reach, rows[i].Findings))
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			testutil.Check(t, tc.reason+": rows", []string{tc.want}, got)
		})
	}
}
