// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
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
	const (
		inOrder = "robot everything [cluster-admin unmounted unreferenced]"
		admin   = "robot everything [cluster-admin bad-token unmounted unreferenced]"
		dead    = "servant  [bad-token orphan unmounted unreferenced]"
	)
	type changes []func(*corev1.Secret)
	for name, tc := range map[string]struct {
		reason    string
		key       []byte // P-256 if nil
		unchecked bool
		changes   changes
		want      string
	}{
		"in order":           {want: inOrder},
		"no name":            {changes: changes{of("Not a name", "uid-robot")}, want: admin},
		"nobody's name":      {changes: changes{of("nobody", "uid-robot")}, want: admin},
		"another's":          {changes: changes{servant}, want: admin},
		"another UID":        {changes: changes{of("robot", "uid-former")}, want: inOrder},
		"none":               {changes: changes{bare}, want: admin},
		"respelled":          {reason: "kube-apiserver does not mind the spelling", changes: changes{servant, respell}, want: admin},
		"spaced":             {reason: "likewise", changes: changes{servant, space}, want: admin},
		"keys are unchecked": {reason: "kube-apiserver need not show its keys", unchecked: true, changes: changes{servant}, want: admin},
		"key is unknown": {
			reason: "the flags need not name all of kube-apiserver's", key: testkeys.P521(), changes: changes{servant},
			want: "robot everything [cluster-admin bad-token unknown-key unmounted unreferenced]",
		},
		"forged":            {reason: "what it claims is worth nothing", changes: changes{servant, tampered}, want: dead},
		"of another Secret": {reason: "that one tells", changes: changes{servant, copied}, want: dead},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.key == nil {
				tc.key = testkeys.P256()
			}
			auditor := &Auditor{
				Client: palace(tokenSecret(t, "a", tc.key, tc.changes...)), Keys: testKeys(t), Rules: Rules{Now: now, UnusedFor: year},
				Reach:    true,
				Progress: func(int) {},
			}
			if tc.unchecked {
				auditor.Keys = nil
			}
			report := testutil.Get(auditor.Run(t.Context()))(t)
			var got []string
			for _, row := range report.Tokens {
				got = append(got, fmt.Sprintf("%s %s %s", row.Account, row.Reach, row.Findings))
			}
			testutil.Check(t, tc.reason+": rows", []string{tc.want}, got)
		})
	}
}

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// testKeys are an active and a retired key. A third one is nobody's.
func testKeys(tb testing.TB) Keys {
	tb.Helper()
	return Keys{
		{PublicKey: testkeys.Parse(testkeys.P256()).Public(), Role: signing.Active},
		{PublicKey: testkeys.Parse(testkeys.P384()).Public(), Role: signing.Retired},
	}
}

// tokenSecret is in order: of account robot in namespace shop, made ten days ago.
func tokenSecret(tb testing.TB, name string, key []byte, changes ...func(*corev1.Secret)) *corev1.Secret {
	tb.Helper()
	token := testutil.Get(tokens.NewIssuer(testkeys.Parse(key), tokens.CompatClaims).
		Legacy(tb.Context(), tokens.Account{Namespace: "shop", Name: "robot", UID: "uid-robot"}, name))(tb)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("uid-" +
				name), CreationTimestamp: metav1.NewTime(now.AddDate(0, 0, -10)), Labels: map[string]string{},
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot", corev1.ServiceAccountUIDKey: "uid-robot"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{"token": []byte(token), "namespace": []byte("shop")},
	}
	for _, change := range changes {
		change(secret)
	}
	return secret
}
