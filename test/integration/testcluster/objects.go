// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/testutil"
)

// AutoCreatedLabel is that of the product.
const AutoCreatedLabel = "sa-controller-manager/auto-created"

// TokenSecret returns what a user writes: the type and the account's name.
func TokenSecret(namespace, name, account string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: account},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{},
	}
}

// CreateSecret creates a Secret.
func (c *ControlPlane) CreateSecret(t *testing.T, secret *corev1.Secret) *corev1.Secret {
	t.Helper()
	made, err := c.API.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	testutil.Must(t, err)
	return made
}

// GetSecret returns a Secret.
func (c *ControlPlane) GetSecret(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	secret, err := c.API.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	testutil.Must(t, err)
	return secret
}

// PatchSecret applies a JSON merge patch.
func (c *ControlPlane) PatchSecret(t *testing.T, namespace, name, patch string) *corev1.Secret {
	t.Helper()
	secret, err := c.API.CoreV1().Secrets(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	testutil.Must(t, err)
	return secret
}

// CreateAccount creates an account that references Secrets.
func (c *ControlPlane) CreateAccount(t *testing.T, namespace, name string, secrets ...string) *corev1.ServiceAccount {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, secret := range secrets {
		account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: secret})
	}
	made, err := c.API.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
	testutil.Must(t, err)
	return made
}

// GetAccount returns an account.
func (c *ControlPlane) GetAccount(t *testing.T, namespace, name string) *corev1.ServiceAccount {
	t.Helper()
	account, err := c.API.CoreV1().ServiceAccounts(namespace).Get(t.Context(), name, metav1.GetOptions{})
	testutil.Must(t, err)
	return account
}
