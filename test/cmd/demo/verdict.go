// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// issue returns a new bound token and a new legacy token, which the given key must have signed.
func (d *rotation) issue(ctx context.Context, signer key) (bound, legacy string, err error) {
	if bound, err = d.request(ctx); err != nil {
		return "", "", err
	}
	name := fmt.Sprintf("token-%d", len(d.issued))
	if err := d.createTokenSecret(ctx, metav1.NamespaceDefault, name, account); err != nil {
		return "", "", err
	}
	secret, err := d.awaitFilled(ctx, metav1.NamespaceDefault, name)
	if err != nil {
		return "", "", err
	}
	legacy = tokenOf(secret)
	for name, token := range map[string]string{"a requested token": bound, "secret " + name: legacy} {
		got, err := signerOf(token)
		if err != nil {
			return "", "", err
		}
		if got != signer {
			return "", "", fmt.Errorf("%s is signed with %s, want %s", name, got, signer)
		}
		d.issued = append(d.issued, issuedToken{name, token, signer})
	}
	if !slices.Contains(d.used, signer) {
		d.used = append(d.used, signer)
	}
	d.Notef("signed", "a requested token and secret %s/%s, with %s", metav1.NamespaceDefault, name, signer)
	return bound, legacy, nil
}

// signerOf returns the key that the header of a token names.
func signerOf(token string) (key, error) {
	header, _, err := decodeToken(token)
	id, _ := header["kid"].(string)
	algorithm, _ := header["alg"].(string)
	if err == nil && id == "" {
		err = errors.New("a token without a key ID")
	}
	return key{id, algorithm}, err
}

// reviewAll has kube-apiserver review every token of the demonstration. It caches its answer for a
// token and its audiences for ten seconds, so each review names another audience.
func (d *rotation) reviewAll(ctx context.Context) error {
	for _, issued := range d.issued {
		review, err := d.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{
				Token:     issued.token,
				Audiences: []string{d.cluster.Issuer(), fmt.Sprintf("review-%d", d.reviews)},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("review %s of %s: %w", issued.name, issued.signer, err)
		}
		if !review.Status.Authenticated {
			return fmt.Errorf("%s of %s is refused: %s", issued.name, issued.signer, review.Status.Error)
		}
		d.reviews++
	}
	d.Notef("reviewed", "%d tokens, of all keys that have signed: all accepted", len(d.issued))
	return nil
}
