// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

func TestMain(m *testing.M) {
	// The second handler slows errors down by the time since the last one, which was in another
	// synctest bubble and may be decades ahead.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // there is no other way
	testutil.Main(m)
}

const accountUID = "9b1c6f6a-6a3c-4d5e-8a58-2f4f1c2d3e4f"

// robot is the account that most tokens here are for.
func robot() tokens.Account {
	return tokens.Account{Namespace: "shop", Name: "robot", UID: accountUID}
}

// legacyToken is a signed legacy token.
func legacyToken(t testing.TB, account tokens.Account, secret string) string {
	t.Helper()
	token, err := tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims).Legacy(t.Context(), account, secret)
	testutil.Must(t, err)
	return token
}

// tokenSecret is the Secret shop/robot-token for the account robot, complete but for the token,
// with changes made to it.
func tokenSecret(changes ...func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "robot-token", UID: "secret-uid", ResourceVersion: "17",
			Annotations: map[string]string{
				corev1.ServiceAccountNameKey: "robot",
				corev1.ServiceAccountUIDKey:  accountUID,
			},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{
			corev1.ServiceAccountRootCAKey:    []byte(strings.Repeat("certificate ", 100)),
			corev1.ServiceAccountNamespaceKey: []byte("shop"),
		},
	}
	for _, change := range changes {
		change(secret)
	}
	return secret
}

func withToken(token string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Data[corev1.ServiceAccountTokenKey] = []byte(token) }
}

func withAnnotation(name, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Annotations[name] = value }
}

func withData(name, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Data[name] = []byte(value) }
}
