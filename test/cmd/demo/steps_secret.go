// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
)

func handmadeSecretIsFilled(ctx context.Context, s *story) error {
	secret, err := s.createTokenSecret(ctx, handmade, account)
	if err != nil {
		return err
	}
	s.Notef("created", "secret %s/%s with a type and one annotation, no data", namespace, handmade)
	s.Notef("observed", "%s", describe(secret))
	if err := s.checkContent(secret, s.account.UID); err != nil {
		return err
	}
	if err := s.client.CoreV1().Secrets(namespace).Delete(ctx, handmade, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the secret: %w", err)
	}
	s.Notef("deleted", "secret %s/%s", namespace, handmade)
	return nil
}

func deletedSecretIsReplaced(ctx context.Context, s *story) error {
	old := s.secret.Name
	if err := s.client.CoreV1().Secrets(namespace).Delete(ctx, old, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the secret: %w", err)
	}
	s.Notef("deleted", "secret %s/%s", namespace, old)
	err := s.awaitAccounts(ctx, func(accounts []*corev1.ServiceAccount) error {
		object, ok := await.Find(accounts, account)
		if !ok || references(object, old) {
			return fmt.Errorf("serviceaccount %s still lists %s", account, old)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.Notef("observed", "serviceaccount %s/%s no longer lists it", namespace, account)
	secret, err := s.awaitTokenSecret(ctx, account)
	if err != nil {
		return err
	}
	if secret.Name == old {
		return fmt.Errorf("secret %s again: its token would be the revoked one", old)
	}
	s.secret = secret
	s.Notef("observed", "secret %s/%s, made by the manager, is listed instead", namespace, secret.Name)
	return s.checkContent(secret, s.account.UID)
}

// createTokenSecret does what a user does who wants a token, and waits until
// the Secret is filled.
func (s *story) createTokenSecret(ctx context.Context, name, account string) (*corev1.Secret, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: account},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	if _, err := s.client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create the secret: %w", err)
	}
	err := s.awaitSecrets(ctx, func(secrets []*corev1.Secret) error {
		found, ok := await.Find(secrets, name)
		if !ok || len(found.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return fmt.Errorf("secret %s has no token", name)
		}
		secret = found
		return nil
	})
	return secret, err
}

// awaitTokenSecret waits until the account lists a token Secret and that Secret
// has a token. Both are awaited as state, because either may be seen first.
func (s *story) awaitTokenSecret(ctx context.Context, account string) (*corev1.Secret, error) {
	var listed []string
	err := s.awaitAccounts(ctx, func(accounts []*corev1.ServiceAccount) error {
		object, ok := await.Find(accounts, account)
		if !ok || len(object.Secrets) != 1 {
			return fmt.Errorf("serviceaccount %s does not list exactly one secret", account)
		}
		listed = []string{object.Secrets[0].Name}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var secret *corev1.Secret
	err = s.awaitSecrets(ctx, func(secrets []*corev1.Secret) error {
		found, ok := await.Find(secrets, listed[0])
		if !ok || len(found.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return fmt.Errorf("secret %s, which serviceaccount %s lists, has no token", listed[0], account)
		}
		secret = found
		return nil
	})
	return secret, err
}

func references(account *corev1.ServiceAccount, secret string) bool {
	return slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret })
}
