// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

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
	token, err := tokens.NewIssuer(testkeys.Parse(key), tokens.CompatClaims).
		Legacy(tb.Context(), tokens.Account{Namespace: "shop", Name: "robot", UID: "uid-robot"}, name)
	testutil.Must(tb, err)
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
