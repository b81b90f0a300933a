// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
)

// Labels that the product gives a meaning to.
const (
	autoCreatedLabel  = "sa-controller-manager/auto-created"
	invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
)

// change shapes an object before it is created.
type change func(*corev1.Secret)

// tokenSecret is what a user writes: the type and the account's name.
func tokenSecret(namespace, name, account string, changes ...change) *corev1.Secret {
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

func withUID(uid types.UID) change {
	return func(s *corev1.Secret) { s.Annotations[corev1.ServiceAccountUIDKey] = string(uid) }
}

func withData(key, value string) change {
	return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
}

func withLabel(name, value string) change {
	return func(s *corev1.Secret) { metav1.SetMetaDataLabel(&s.ObjectMeta, name, value) }
}

func withFinalizer(s *corev1.Secret) { s.Finalizers = []string{"test/finalizer"} }

func immutable(s *corev1.Secret) {
	yes := true
	s.Immutable = &yes
}

func (c *controlPlane) createSecret(t *testing.T, secret *corev1.Secret) *corev1.Secret {
	t.Helper()
	made, err := c.client.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create secret %s/%s: %v", secret.Namespace, secret.Name, err)
	}
	return made
}

func (c *controlPlane) deleteSecret(t *testing.T, namespace, name string) {
	t.Helper()
	if err := c.client.CoreV1().Secrets(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete secret %s/%s: %v", namespace, name, err)
	}
}

func (c *controlPlane) getSecret(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	secret, err := c.client.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get secret %s/%s: %v", namespace, name, err)
	}
	return secret
}

// patchSecret applies a JSON merge patch.
func (c *controlPlane) patchSecret(t *testing.T, namespace, name, patch string) *corev1.Secret {
	t.Helper()
	secret, err := c.client.CoreV1().Secrets(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatalf("patch secret %s/%s: %v", namespace, name, err)
	}
	return secret
}

func (c *controlPlane) createAccount(t *testing.T, namespace, name string, changes ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, change := range changes {
		change(account)
	}
	made, err := c.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create service account %s/%s: %v", namespace, name, err)
	}
	return made
}

// referencing has the account list Secrets.
func referencing(names ...string) func(*corev1.ServiceAccount) {
	return func(account *corev1.ServiceAccount) {
		for _, name := range names {
			account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: name})
		}
	}
}

func (c *controlPlane) deleteAccount(t *testing.T, namespace, name string) {
	t.Helper()
	if err := c.client.CoreV1().ServiceAccounts(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete service account %s/%s: %v", namespace, name, err)
	}
}

func (c *controlPlane) getAccount(t *testing.T, namespace, name string) *corev1.ServiceAccount {
	t.Helper()
	account, err := c.client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get service account %s/%s: %v", namespace, name, err)
	}
	return account
}

// addReferences adds to an account's list of Secrets, by name and as the given
// field manager.
func (c *controlPlane) addReferences(t *testing.T, namespace, account, fieldManager string, names ...string) {
	t.Helper()
	type entry struct {
		Name string `json:"name"`
	}
	patch := struct {
		Secrets []entry `json:"secrets"`
	}{}
	for _, name := range names {
		patch.Secrets = append(patch.Secrets, entry{name})
	}
	body, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.CoreV1().ServiceAccounts(namespace).Patch(t.Context(), account, types.StrategicMergePatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		t.Fatalf("add references to service account %s/%s: %v", namespace, account, err)
	}
}

func referenceNames(account *corev1.ServiceAccount) []string {
	names := make([]string, 0, len(account.Secrets))
	for _, reference := range account.Secrets {
		names = append(names, reference.Name)
	}
	return names
}

// awaitSecrets returns the Secrets of a namespace once they pass the check.
func (c *controlPlane) awaitSecrets(t *testing.T, namespace string, check await.Check[*corev1.Secret]) []*corev1.Secret {
	t.Helper()
	secrets, err := await.Secrets(limited(t), c.client, namespace, check)
	if err != nil {
		t.Fatalf("in namespace %q: %v", namespace, err)
	}
	return secrets
}

// awaitSecret returns one Secret once it passes the check.
func (c *controlPlane) awaitSecret(t *testing.T, namespace, name string, check func(*corev1.Secret) error) *corev1.Secret {
	t.Helper()
	secrets := c.awaitSecrets(t, namespace, one(name, check))
	secret, _ := await.Find(secrets, name)
	return secret
}

func (c *controlPlane) awaitGone(t *testing.T, namespace string, names ...string) {
	t.Helper()
	c.awaitSecrets(t, namespace, await.Gone[*corev1.Secret](names...))
}

// awaitFilled returns a Secret once it has a token.
func (c *controlPlane) awaitFilled(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	return c.awaitSecret(t, namespace, name, hasToken)
}

func hasToken(secret *corev1.Secret) error {
	if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
		return fmt.Errorf("%q has no token", secret.Name)
	}
	return nil
}

// awaitAccount returns one account once it passes the check.
func (c *controlPlane) awaitAccount(t *testing.T, namespace, name string, check func(*corev1.ServiceAccount) error) *corev1.ServiceAccount {
	t.Helper()
	accounts, err := await.ServiceAccounts(limited(t), c.client, namespace, one(name, check))
	if err != nil {
		t.Fatalf("in namespace %q: %v", namespace, err)
	}
	account, _ := await.Find(accounts, name)
	return account
}

// one is a check of a single object.
func one[T await.Object](name string, check func(T) error) await.Check[T] {
	return func(objects []T) error {
		object, ok := await.Find(objects, name)
		if !ok {
			return fmt.Errorf("%q does not exist", name)
		}
		return check(object)
	}
}

// awaitOwn returns the Secret that an account references alone, once it does and
// that Secret exists with a token: what it has in mode auto.
func (c *controlPlane) awaitOwn(t *testing.T, namespace, account string) *corev1.Secret {
	t.Helper()
	found := c.awaitAccount(t, namespace, account, func(account *corev1.ServiceAccount) error {
		if len(account.Secrets) != 1 {
			return fmt.Errorf("%q references %v, want one", account.Name, referenceNames(account))
		}
		return nil
	})
	return c.awaitFilled(t, namespace, found.Secrets[0].Name)
}

// fence returns once the manager has dealt with everything that happened to
// Secrets and accounts before the call, except what it put off to a later time.
func (c *controlPlane) fence(t *testing.T, m *manager) {
	t.Helper()
	c.seen(t)
	m.awaitIdle(t)
}

// seen returns once the manager's cache has everything that happened to Secrets and
// accounts before the call.
func (c *controlPlane) seen(t *testing.T) {
	t.Helper()
	namespace := c.namespace(t)
	for range 2 { // the first one may overtake the start of the manager
		account := c.createAccount(t, namespace, "fence-"+randomName())
		secret := c.createSecret(t, tokenSecret(namespace, account.Name, account.Name))
		c.awaitFilled(t, namespace, secret.Name)
	}
}
