// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) {
	// The second handler slows errors down by the time since the last one, which was in another
	// synctest bubble and may be decades ahead.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // there is no other way
	testutil.Main(m)
}

const accountUID = "9b1c6f6a-6a3c-4d5e-8a58-2f4f1c2d3e4f"

// tokenSecret is the Secret shop/robot-token with a token for the account.
func tokenSecret(account string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "robot-token", UID: "secret-uid", ResourceVersion: "17",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: account, corev1.ServiceAccountUIDKey: accountUID},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte("e30.e30.c2lnbmF0dXJl")},
	}
}
