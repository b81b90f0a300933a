// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
)

func (s *story) createNamespace(ctx context.Context, name string) error {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := s.client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{})
	return err
}

// createTokenSecret creates what a user writes to get a token that does not expire.
func (s *story) createTokenSecret(ctx context.Context, namespace, name, account string) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	_, err := s.client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	return err
}

// awaitFilled returns a Secret once it has a token.
func (s *story) awaitFilled(ctx context.Context, namespace, name string) (secret *corev1.Secret, err error) {
	_, err = await.Secrets(ctx, s.client, namespace, func(secrets []*corev1.Secret) error {
		found, ok := await.Find(secrets, name)
		if !ok || tokenOf(found) == "" {
			return fmt.Errorf("secret %s has no token", name)
		}
		secret = found
		return nil
	})
	return secret, err
}

// awaitTokenSecret returns the token Secret of an account once the account lists it, and no other
// one and not the former one, and it has a token.
func (s *story) awaitTokenSecret(ctx context.Context, namespace, account, former string) (*corev1.Secret, error) {
	name := ""
	if _, err := await.ServiceAccounts(ctx, s.client, namespace, func(accounts []*corev1.ServiceAccount) error {
		found, ok := await.Find(accounts, account)
		if !ok || len(found.Secrets) != 1 || found.Secrets[0].Name == former {
			return fmt.Errorf("serviceaccount %s does not list exactly one secret, another one than %q", account, former)
		}
		name = found.Secrets[0].Name
		return nil
	}); err != nil {
		return nil, err
	}
	return s.awaitFilled(ctx, namespace, name)
}

func tokenOf(secret *corev1.Secret) string { return string(secret.Data[corev1.ServiceAccountTokenKey]) }

// checkContent verifies all of a token Secret but the token itself.
func (s *story) checkContent(secret *corev1.Secret, uid types.UID) error {
	rootCA, err := os.ReadFile(s.cluster.CAFile())
	if err != nil {
		return err
	}
	want := map[string][]byte{
		corev1.ServiceAccountTokenKey: []byte(tokenOf(secret)), corev1.ServiceAccountRootCAKey: rootCA,
		corev1.ServiceAccountNamespaceKey: []byte(secret.Namespace),
	}
	if got := secret.Annotations[corev1.ServiceAccountUIDKey]; !maps.EqualFunc(secret.Data, want, bytes.Equal) || got != string(uid) {
		return fmt.Errorf("secret %s has other data than token, root CA and namespace, or UID %q, not %q", secret.Name, got, uid)
	}
	s.notef("data", "token, ca.crt (the root CA) and namespace are in place, the account's UID is annotated")
	return nil
}

// decode splits a compact JWT (RFC 7519): three base64url segments without padding, the first
// two of them JSON objects. It verifies nothing. Errors do not quote the token.
func decode(token string) (header, claims map[string]any, err error) {
	segments := strings.Split(token, ".")
	if len(segments) != 3 {
		return nil, nil, fmt.Errorf("a token of %d segments", len(segments))
	}
	for i, into := range []*map[string]any{&header, &claims} {
		data, err := base64.RawURLEncoding.DecodeString(segments[i])
		if err != nil || json.Unmarshal(data, into) != nil {
			return nil, nil, errors.New("a token whose header or claims are not JSON in base64url")
		}
	}
	return header, claims, nil
}

// indented renders an object as JSON.
func indented(object any) string {
	data, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return fmt.Sprintf("%v", object)
	}
	return string(data)
}
