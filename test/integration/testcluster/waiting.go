// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// AwaitSecrets returns the Secrets of a namespace once they pass the check.
func (c *ControlPlane) AwaitSecrets(t *testing.T, namespace string, check await.Check[*corev1.Secret]) []*corev1.Secret {
	t.Helper()
	secrets, err := await.Secrets(Context(t), c.API, namespace, check)
	testutil.Require(t, err == nil, "in namespace %q: %v", namespace, err)
	return secrets
}

// AwaitSecret returns one Secret once it passes the check.
func (c *ControlPlane) AwaitSecret(t *testing.T, namespace, name string, check func(*corev1.Secret) error) *corev1.Secret {
	t.Helper()
	secrets := c.AwaitSecrets(t, namespace, one(name, check))
	secret, _ := await.Find(secrets, name)
	return secret
}

// AwaitGone waits until the Secrets are gone.
func (c *ControlPlane) AwaitGone(t *testing.T, namespace string, names ...string) {
	t.Helper()
	c.AwaitSecrets(t, namespace, await.Gone[*corev1.Secret](names...))
}

// AwaitFilled returns a Secret once it has a token.
func (c *ControlPlane) AwaitFilled(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	return c.AwaitSecret(t, namespace, name, hasToken)
}

// hasToken is nil if the Secret has a token.
func hasToken(secret *corev1.Secret) error {
	if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
		return fmt.Errorf("%q has no token", secret.Name)
	}
	return nil
}

// AwaitAccount returns one account once it passes the check.
func (c *ControlPlane) AwaitAccount(t *testing.T, namespace, name string, check func(*corev1.ServiceAccount) error) *corev1.ServiceAccount {
	t.Helper()
	accounts, err := await.ServiceAccounts(Context(t), c.API, namespace, one(name, check))
	testutil.Require(t, err == nil, "in namespace %q: %v", namespace, err)
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

// AwaitAutoSecret returns the one Secret that an account references, once that Secret has a token.
func (c *ControlPlane) AwaitAutoSecret(t *testing.T, namespace, account string) *corev1.Secret {
	t.Helper()
	found := c.AwaitAccount(t, namespace, account, func(account *corev1.ServiceAccount) error {
		if len(account.Secrets) != 1 {
			return fmt.Errorf("%q references %v, want one", account.Name, account.Secrets)
		}
		return nil
	})
	return c.AwaitFilled(t, namespace, found.Secrets[0].Name)
}

// AwaitProcessed returns once the manager has processed every earlier change of Secrets and accounts,
// except keys that it requeued for later.
func (c *ControlPlane) AwaitProcessed(t *testing.T, m *Manager) {
	t.Helper()
	namespace := c.Namespace(t)
	for range 2 { // the first one may overtake the start of the manager
		account := c.CreateAccount(t, namespace, "fence-"+randomName())
		secret := c.CreateSecret(t, TokenSecret(namespace, account.Name, account.Name))
		c.AwaitFilled(t, namespace, secret.Name)
	}
	m.WaitIdle(t)
}

// AwaitConfigMap returns a ConfigMap once it passes the check.
func (c *ControlPlane) AwaitConfigMap(t *testing.T, namespace, name string, check func(*corev1.ConfigMap) error) *corev1.ConfigMap {
	t.Helper()
	found, err := await.ConfigMaps(Context(t), c.API, namespace, one(name, check))
	testutil.Require(t, err == nil, "in namespace %q: %v", namespace, err)
	configMap, _ := await.Find(found, name)
	return configMap
}

// AwaitAccounts waits until the accounts exist.
func (c *ControlPlane) AwaitAccounts(t *testing.T, namespace string, names ...string) {
	t.Helper()
	_, err := await.ServiceAccounts(Context(t), c.API, namespace, await.Named[*corev1.ServiceAccount](names...))
	testutil.Require(t, err == nil, "in namespace %q: %v", namespace, err)
}

// AwaitEvent waits for an Event of the product about a Secret, whose note contains text.
func (c *ControlPlane) AwaitEvent(t *testing.T, secret *corev1.Secret, kind, reason, text string) {
	t.Helper()
	lw := cache.NewListWatchFromClient(c.API.EventsV1().RESTClient(), "events", secret.Namespace, fields.Everything())
	_, err := await.Objects(Context(t), lw, &eventsv1.Event{}, func(events []*eventsv1.Event) error {
		for _, event := range events {
			if event.Regarding.Kind == "Secret" && event.Regarding.Name == secret.Name &&
				event.ReportingController == "sa-controller-manager" &&
				event.Type == kind && event.Reason == reason && strings.Contains(event.Note, text) {
				return nil
			}
		}
		return fmt.Errorf("no %s %s about Secret %s with %q", kind, reason, secret.Name, text)
	})
	testutil.Must(t, err)
}

// AutoCreatedLabel is that of the product.
const AutoCreatedLabel = "sa-controller-manager/auto-created"

// TokenSecret returns what a user writes: the type and the account's name.
func TokenSecret(namespace, name, account string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{},
	}
}

// CreateSecret creates a Secret.
func (c *ControlPlane) CreateSecret(t *testing.T, secret *corev1.Secret) *corev1.Secret {
	t.Helper()
	return testutil.Get(c.API.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{}))(t)
}

// GetSecret returns a Secret.
func (c *ControlPlane) GetSecret(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	return testutil.Get(c.API.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
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
	return testutil.Get(c.API.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}))(t)
}

// GetAccount returns an account.
func (c *ControlPlane) GetAccount(t *testing.T, namespace, name string) *corev1.ServiceAccount {
	t.Helper()
	return testutil.Get(c.API.CoreV1().ServiceAccounts(namespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
}
