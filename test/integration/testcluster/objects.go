// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/testutil"
)

// ResourceVersions maps the Secrets and accounts of a namespace to their resourceVersions.
func (c *ControlPlane) ResourceVersions(t *testing.T, namespace string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	secrets, err := c.API.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
	testutil.Must(t, err)
	for _, secret := range secrets.Items {
		versions["secret "+secret.Name] = secret.ResourceVersion
	}
	accounts, err := c.API.CoreV1().ServiceAccounts(namespace).List(t.Context(), metav1.ListOptions{})
	testutil.Must(t, err)
	for _, account := range accounts.Items {
		versions["account "+account.Name] = account.ResourceVersion
	}
	return versions
}

// WithAnnotation sets an annotation.
func WithAnnotation(name, value string) SecretOption {
	return func(s *corev1.Secret) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, name, value) }
}

// AccountName returns the name of the i-th account.
func AccountName(i int) string { return fmt.Sprintf("account-%d", i) }

// AutoCreatedLabel is that of the product.
const AutoCreatedLabel = "sa-controller-manager/auto-created"

// SecretOption changes a Secret before it is created.
type SecretOption func(*corev1.Secret)

// TokenSecret returns what a user writes: the type and the account's name.
func TokenSecret(namespace, name, account string, changes ...SecretOption) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: account},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{},
	}
	for _, change := range changes {
		change(secret)
	}
	return secret
}

// WithUID sets the annotation with the UID of the account.
func WithUID(uid types.UID) SecretOption {
	return func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountUIDKey] = string(uid) }
}

// WithData sets a key of the data.
func WithData(key, value string) SecretOption {
	return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
}

// WithLabel sets a label.
func WithLabel(name, value string) SecretOption {
	return func(s *corev1.Secret) { metav1.SetMetaDataLabel(&s.ObjectMeta, name, value) }
}

// Immutable makes the Secret immutable.
func Immutable(s *corev1.Secret) {
	yes := true
	s.Immutable = &yes
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

// CreateAccount creates an account.
func (c *ControlPlane) CreateAccount(t *testing.T, namespace, name string, changes ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, change := range changes {
		change(account)
	}
	made, err := c.API.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
	testutil.Must(t, err)
	return made
}

// Referencing adds Secrets to the list of the account.
func Referencing(names ...string) func(*corev1.ServiceAccount) {
	return func(account *corev1.ServiceAccount) {
		for _, name := range names {
			account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: name})
		}
	}
}

// DeleteAccount deletes an account.
func (c *ControlPlane) DeleteAccount(t *testing.T, namespace, name string) {
	t.Helper()
	testutil.Must(t, c.API.CoreV1().ServiceAccounts(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

// GetAccount returns an account.
func (c *ControlPlane) GetAccount(t *testing.T, namespace, name string) *corev1.ServiceAccount {
	t.Helper()
	account, err := c.API.CoreV1().ServiceAccounts(namespace).Get(t.Context(), name, metav1.GetOptions{})
	testutil.Must(t, err)
	return account
}

// Opaque returns a Secret of another type.
func Opaque(namespace, name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeOpaque}
}
