// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
)

func namespaceGetsAccount(ctx context.Context, s *story) error {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := s.client.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the namespace: %w", err)
	}
	s.Notef("created", "namespace %s", namespace)
	found, err := s.awaitAccount(ctx, account, "")
	if err != nil {
		return err
	}
	s.account = found
	s.Notef("observed", "serviceaccount %s/%s, uid %s", namespace, found.Name, found.UID)
	return nil
}

func accountGetsSecret(ctx context.Context, s *story) error {
	secret, err := s.awaitTokenSecret(ctx, account)
	if err != nil {
		return err
	}
	s.secret = secret
	s.Notef("observed", "secret %s/%s, made by the manager", namespace, secret.Name)
	s.Notef("", "type %s, labels %s", secret.Type, labels.FormatLabels(secret.Labels))
	s.Notef("observed", "serviceaccount %s/%s lists it in secrets", namespace, account)
	return s.checkContent(secret, s.account.UID)
}

func deletedAccountTakesSecrets(ctx context.Context, s *story) error {
	accounts := s.client.CoreV1().ServiceAccounts(namespace)
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: otherAccount}}
	if _, err := accounts.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the account: %w", err)
	}
	s.Notef("created", "serviceaccount %s/%s", namespace, otherAccount)
	own, err := s.awaitTokenSecret(ctx, otherAccount)
	if err != nil {
		return err
	}
	s.Notef("observed", "secret %s/%s, made by the manager", namespace, own.Name)
	byHand, err := s.createTokenSecret(ctx, otherAccount+"-"+handmade, otherAccount)
	if err != nil {
		return err
	}
	s.Notef("observed", "secret %s/%s, filled by the manager", namespace, byHand.Name)

	if err := accounts.Delete(ctx, otherAccount, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the account: %w", err)
	}
	s.Notef("deleted", "serviceaccount %s/%s", namespace, otherAccount)
	if err := s.awaitSecrets(ctx, await.Gone[*corev1.Secret](own.Name, byHand.Name)); err != nil {
		return err
	}
	s.Notef("observed", "both secrets are gone")
	return nil
}

func defaultAccountComesBack(ctx context.Context, s *story) error {
	old := s.account
	if err := s.client.CoreV1().ServiceAccounts(namespace).Delete(ctx, account, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete the account: %w", err)
	}
	s.Notef("deleted", "serviceaccount %s/%s, uid %s", namespace, account, old.UID)
	found, err := s.awaitAccount(ctx, account, old.UID)
	if err != nil {
		return err
	}
	s.Notef("observed", "serviceaccount %s/%s, uid %s", namespace, account, found.UID)
	secret, err := s.awaitTokenSecret(ctx, account)
	if err != nil {
		return err
	}
	s.Notef("observed", "secret %s/%s, made by the manager", namespace, secret.Name)
	if err := s.awaitSecrets(ctx, await.Gone[*corev1.Secret](s.secret.Name)); err != nil {
		return err
	}
	s.Notef("observed", "secret %s/%s is gone", namespace, s.secret.Name)
	return s.checkContent(secret, found.UID)
}

// awaitAccount waits until an account of that name and of another UID than the
// given one exists.
func (s *story) awaitAccount(ctx context.Context, name string, not types.UID) (*corev1.ServiceAccount, error) {
	var found *corev1.ServiceAccount
	err := s.awaitAccounts(ctx, func(accounts []*corev1.ServiceAccount) error {
		object, ok := await.Find(accounts, name)
		switch {
		case !ok:
			return fmt.Errorf("serviceaccount %s does not exist", name)
		case object.UID == not:
			return fmt.Errorf("serviceaccount %s is still the old one", name)
		}
		found = object
		return nil
	})
	return found, err
}

// checkContent verifies all of a token Secret but the token itself.
func (s *story) checkContent(secret *corev1.Secret, uid types.UID) error {
	rootCA, err := os.ReadFile(s.cluster.CAFile())
	if err != nil {
		return fmt.Errorf("read the root CA: %w", err)
	}
	switch {
	case len(secret.Data) != 3:
		return fmt.Errorf("%d keys in the data of secret %s", len(secret.Data), secret.Name)
	case !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], rootCA):
		return errors.New("another ca.crt than the root CA file of the manager")
	case string(secret.Data[corev1.ServiceAccountNamespaceKey]) != namespace:
		return fmt.Errorf("namespace %q in the data", secret.Data[corev1.ServiceAccountNamespaceKey])
	case secret.Annotations[corev1.ServiceAccountUIDKey] != string(uid):
		return fmt.Errorf("UID %q in the annotations, the account has %q", secret.Annotations[corev1.ServiceAccountUIDKey], uid)
	}
	s.Notef("data", "token, ca.crt (the root CA) and namespace are in place, the account's UID is annotated")
	return nil
}
