// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
)

// issue returns a new bound token and a new legacy token, which the given key must have signed, once every
// host signs with it: one that has its copy later follows a moment later.
func (d *rotation) issue(ctx context.Context, signer key) (bound, legacy string, err error) {
	for _, h := range d.hosts {
		if err := await.Poll(ctx, func(ctx context.Context) error {
			_, err := h.call(func(h *host) error {
				var err error
				bound, err = h.request(ctx)
				return err
			})
			if err != nil {
				return err
			}
			if got, err := signerOf(bound); err != nil || got != signer {
				return fmt.Errorf("%s: a requested token is signed with %s, want %s: %w", h.name, got, signer, orNil(err))
			}
			return nil
		}); err != nil {
			return "", "", err
		}
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

// reviewAll has each kube-apiserver review every token of the demonstration. It caches its answer for a
// token and its audiences for ten seconds, so each review names another audience.
func (d *rotation) reviewAll(ctx context.Context) error {
	for _, h := range d.hosts {
		if _, err := h.call(func(h *host) error {
			for _, issued := range d.issued {
				if err := d.review(ctx, h, issued); err != nil {
					return fmt.Errorf("%s of %s, at %s: %w", issued.name, issued.signer, h.name, err)
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	d.Notef("reviewed", "%d tokens, of all keys that have signed, by each kube-apiserver: all accepted", len(d.issued))
	return nil
}

func (d *rotation) review(ctx context.Context, h *host, issued issuedToken) error {
	d.reviews++
	review, err := h.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{
			Token: issued.token, Audiences: []string{d.cluster.Issuer(), fmt.Sprintf("review-%d", d.reviews)},
		},
	}, metav1.CreateOptions{})
	if err == nil && !review.Status.Authenticated {
		err = errors.New("refused: " + review.Status.Error)
	}
	return err
}
