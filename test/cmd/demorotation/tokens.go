// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
)

// witness is a token that has to be good to the end.
type witness struct {
	what   string
	token  string
	signer key
}

// call has one bound and one legacy token made now, which the given key must sign.
func (s *story) call(ctx context.Context, signer key) (bound, legacy string, err error) {
	if bound, err = s.request(ctx); err != nil {
		return "", "", err
	}
	name := fmt.Sprintf("token-%d", len(s.witnesses))
	secret, err := s.tokenSecret(ctx, name)
	if err != nil {
		return "", "", err
	}
	legacy = tokenOf(secret)
	for what, token := range map[string]string{"a requested token": bound, "secret " + name: legacy} {
		got, err := signerOf(token)
		if err != nil {
			return "", "", err
		}
		if got != signer {
			return "", "", fmt.Errorf("%s is signed with %s, want %s", what, got, signer)
		}
		s.witnesses = append(s.witnesses, witness{what: what, token: token, signer: signer})
	}
	s.Notef("signed", "a requested token and secret %s/%s, with %s", namespace, name, signer)
	return bound, legacy, nil
}

// reviewAll has kube-apiserver look at every token of the story. It remembers for ten seconds
// what it has made of a token for given audiences, so each review names one of its own.
func (s *story) reviewAll(ctx context.Context) error {
	for _, w := range s.witnesses {
		review, err := s.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{
				Token:     w.token,
				Audiences: []string{s.cluster.Issuer(), fmt.Sprintf("review-%d", s.reviews)},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("review %s of %s: %w", w.what, w.signer, err)
		}
		if !review.Status.Authenticated {
			return fmt.Errorf("%s of %s is refused: %s", w.what, w.signer, review.Status.Error)
		}
		s.reviews++
	}
	s.Notef("reviewed", "%d tokens, of all keys that have signed: all accepted", len(s.witnesses))
	return nil
}

// tokenSecret does what a user does who wants a token that does not expire.
func (s *story) tokenSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	if _, err := s.client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create the secret: %w", err)
	}
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

// awaitPublished returns when kube-apiserver tells the world of a key.
func (s *story) awaitPublished(ctx context.Context, k key) error {
	return await.Poll(ctx, func(ctx context.Context) error {
		body, err := s.client.CoreV1().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
		if err != nil {
			return err
		}
		var set struct {
			Keys []published `json:"keys"`
		}
		if err := json.Unmarshal(body, &set); err != nil {
			return fmt.Errorf("read the key set: %w", err)
		}
		if !slices.Contains(set.Keys, published{k.id}) {
			return fmt.Errorf("%d keys are published, and %s is not among them", len(set.Keys), k)
		}
		s.Notef("observed", "kube-apiserver publishes %d keys in its JWKS", len(set.Keys))
		return nil
	})
}

// published is what a key set says that anybody here wants to know.
type published struct {
	ID string `json:"kid"`
}

// signerOf is the key that a token's header names. Errors do not quote the token.
func signerOf(token string) (key, error) {
	segment, _, _ := strings.Cut(token, ".")
	data, err := base64.RawURLEncoding.DecodeString(segment)
	var header struct {
		KeyID     string `json:"kid"`
		Algorithm string `json:"alg"`
	}
	if err != nil || json.Unmarshal(data, &header) != nil || header.KeyID == "" {
		return key{}, errors.New("a token without a readable header")
	}
	return key{id: header.KeyID, algorithm: header.Algorithm}, nil
}
