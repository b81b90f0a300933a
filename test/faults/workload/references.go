// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Operations of users on auto-created Secrets. None of them may have the product delete one.
const (
	Edited = "edit references"
	Copied = "copy an auto-created Secret"
)

// EditReferences is a user who replaces the list of an account by one that has none of its
// auto-created Secrets, but one of the user's own if there is any. What the list had must stay from now on.
func (c Client) EditReferences(ctx context.Context, n *Namespace, name string) error {
	account := n.Accounts[name]
	account.Edited = true
	listed, err := c.autoCreated(ctx, n.Name, name, account)
	if err != nil {
		return err
	}
	users := n.usersSecrets(name) // copies of auto-created ones among them, which the account may list
	add := users[:min(len(users), 1)]
	for _, secret := range listed {
		// A successor that was never used is the one auto-created Secret that may be deleted.
		if _, used := secret.Labels[LastUsedLabel]; used || secret.Annotations[ReplacesLabel] == "" {
			n.Secrets[secret.Name] = &TokenSecret{UID: secret.UID, Account: name, Owner: account.UID, Extra: string(secret.Data["extra"])}
		}
	}
	return Retry(ctx, "edit serviceaccount "+name, func(ctx context.Context) error {
		object, err := c.CoreV1().ServiceAccounts(n.Name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		object.Secrets = slices.DeleteFunc(object.Secrets, func(ref corev1.ObjectReference) bool {
			return IsOwnName(name, ref.Name) || slices.Contains(users, ref.Name)
		})
		for _, secret := range add {
			object.Secrets = append(object.Secrets, corev1.ObjectReference{Name: secret})
		}
		_, err = c.CoreV1().ServiceAccounts(n.Name).Update(ctx, object, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
		return err
	})
}

// autoCreated are the auto-created Secrets that the account lists. The token of each has been
// used.
func (c Client) autoCreated(ctx context.Context, namespace, name string, account *Account) (listed []*corev1.Secret, err error) {
	secrets := c.CoreV1().Secrets(namespace)
	err = Retry(ctx, "get the Secrets of serviceaccount "+name, func(ctx context.Context) error {
		listed = nil
		object, err := c.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, ref := range object.Secrets {
			secret, err := secrets.Get(ctx, ref.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && (!IsOwnName(name, ref.Name) || Owner(secret) != account.UID) {
				continue
			}
			if err == nil {
				err = c.useToken(ctx, string(secret.Data[corev1.ServiceAccountTokenKey]))
			}
			if err == nil {
				secret, err = secrets.Get(ctx, ref.Name, metav1.GetOptions{})
			}
			if err != nil {
				return err
			}
			listed = append(listed, secret)
		}
		return nil
	})
	return listed, err
}

// useToken has kube-apiserver note in the Secret that the token was used.
func (c Client) useToken(ctx context.Context, token string) error {
	_, err := c.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	return err
}

// CopySecret is a user who applies the YAML of a token Secret under another name, without its data.
func (c Client) CopySecret(ctx context.Context, n *Namespace, from, to, extra string) error {
	var original *corev1.Secret
	err := Retry(ctx, "get secret "+from, func(ctx context.Context) (err error) {
		original, err = c.CoreV1().Secrets(n.Name).Get(ctx, from, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			original, err = nil, nil
		}
		return err
	})
	if err != nil || original == nil {
		return err
	}
	name := original.Annotations[corev1.ServiceAccountNameKey]
	account := n.Accounts[name]
	if account == nil || Owner(original) != account.UID {
		return nil // it belonged to the previous account of the name
	}
	account.Edited = true
	account.AwaitNextSecond(ctx)
	secret := &TokenSecret{Account: name, Owner: account.UID, Extra: extra}
	n.Secrets[to] = secret
	object := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: to, Labels: original.Labels, Annotations: original.Annotations},
		Type:       original.Type,
		Data:       map[string][]byte{"extra": []byte(extra)},
	}
	if err := create(ctx, c.CoreV1().Secrets(n.Name), object, &secret.UID); err != nil {
		return fmt.Errorf("copy a token Secret: %w", err)
	}
	return nil
}
