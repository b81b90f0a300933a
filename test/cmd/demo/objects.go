// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
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
func (s *story) awaitFilled(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	var secret *corev1.Secret
	_, err := await.Secrets(ctx, s.client, namespace, func(secrets []*corev1.Secret) error {
		found, ok := await.Find(secrets, name)
		if !ok || tokenOf(found) == "" {
			return fmt.Errorf("secret %s has no token", name)
		}
		secret = found
		return nil
	})
	return secret, err
}

// awaitAccount returns an account once it exists and passes the check.
func (s *story) awaitAccount(ctx context.Context, namespace, name string,
	check func(*corev1.ServiceAccount) error) (*corev1.ServiceAccount, error) {
	var account *corev1.ServiceAccount
	_, err := await.ServiceAccounts(ctx, s.client, namespace, func(accounts []*corev1.ServiceAccount) error {
		found, ok := await.Find(accounts, name)
		if !ok {
			return fmt.Errorf("serviceaccount %s does not exist", name)
		}
		account = found
		return check(found)
	})
	return account, err
}

// awaitTokenSecret returns the token Secret of an account once the account lists it, and no other
// one, and it has a token.
func (s *story) awaitTokenSecret(ctx context.Context, namespace, account string) (*corev1.Secret, error) {
	found, err := s.awaitAccount(ctx, namespace, account, func(account *corev1.ServiceAccount) error {
		if len(account.Secrets) != 1 {
			return fmt.Errorf("serviceaccount %s does not list exactly one secret", account.Name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.awaitFilled(ctx, namespace, found.Secrets[0].Name)
}

// otherThan passes for an account with another UID.
func otherThan(uid types.UID) func(*corev1.ServiceAccount) error {
	return func(account *corev1.ServiceAccount) error {
		if account.UID == uid {
			return fmt.Errorf("serviceaccount %s is still the old one", account.Name)
		}
		return nil
	}
}

func tokenOf(secret *corev1.Secret) string {
	return string(secret.Data[corev1.ServiceAccountTokenKey])
}

// clientWith returns a client whose only credential is a token.
func clientWith(cluster *devcluster.Cluster, token string, warnings rest.WarningHandler) (kubernetes.Interface, error) {
	config := rest.AnonymousClientConfig(cluster.Config())
	config.BearerToken, config.WarningHandler = token, warnings
	return kubernetes.NewForConfig(config)
}

// decodeToken splits a compact JWT (RFC 7519): three base64url segments without padding, the first
// two of them JSON objects. It verifies nothing. Errors do not quote the token.
func decodeToken(token string) (header, claims map[string]any, err error) {
	segments := strings.Split(token, ".")
	if len(segments) != 3 {
		return nil, nil, fmt.Errorf("a token of %d segments", len(segments))
	}
	if decodeSegment(segments[0], &header) != nil || decodeSegment(segments[1], &claims) != nil {
		return nil, nil, errors.New("a token whose header or claims are not JSON in base64url")
	}
	if _, err := base64.RawURLEncoding.DecodeString(segments[2]); err != nil {
		return nil, nil, errors.New("a token whose signature is not base64url")
	}
	return header, claims, nil
}

func decodeSegment(segment string, into *map[string]any) error {
	data, err := base64.RawURLEncoding.DecodeString(segment)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// keyID computes the ID of a key: base64url of the SHA-256 of the public key in PKIX DER
// (k8s.io/kubernetes/pkg/serviceaccount/jwt.go). It does not use the product's code, which would
// be compared with itself.
func keyID(file string) (string, error) {
	key, err := keyutil.PrivateKeyFromFile(file)
	if err != nil {
		return "", fmt.Errorf("read the signing key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return "", fmt.Errorf("the signing key is a %T", key)
	}
	der, err := x509.MarshalPKIXPublicKey(signer.Public())
	if err != nil {
		return "", fmt.Errorf("encode the public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// indentJSON renders an object as JSON.
func indentJSON(object any) string {
	data, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		return fmt.Sprintf("%v", object)
	}
	return string(data)
}
