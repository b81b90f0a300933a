// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Census is what the API holds of the measurement's own, counted from complete lists.
type Census struct {
	Defaults, Others int // accounts
	RootCAs          int
	Filled           int // token Secrets that the measurement has made and a controller has filled
	Unfilled         int
	Own              int // filled token Secrets that a token controller has made
	// Tokens are the token Secrets by account, as namespace/name.
	Tokens map[string][]string

	example corev1.Secret // one that is filled
}

// Count counts in the namespaces that Namespace names.
func (w *World) Count(ctx context.Context) (*Census, error) {
	core, tokens := w.Client.CoreV1(), metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)}
	accounts, err1 := core.ServiceAccounts("").List(ctx, metav1.ListOptions{})
	configMaps, err2 := core.ConfigMaps("").List(ctx, metav1.ListOptions{})
	secrets, err3 := core.Secrets("").List(ctx, tokens)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	c := &Census{Tokens: map[string][]string{}}
	for _, account := range accounts.Items {
		switch {
		case !counts(account.Namespace):
		case account.Name == "default":
			c.Defaults++
		default:
			c.Others++
		}
	}
	for _, configMap := range configMaps.Items {
		if counts(configMap.Namespace) && isRootCA(&configMap) {
			c.RootCAs++
		}
	}
	for _, secret := range secrets.Items {
		if counts(secret.Namespace) {
			c.secret(secret)
		}
	}
	return c, nil
}

func counts(namespace string) bool { return strings.HasPrefix(namespace, "bench-") }

func (c *Census) secret(s corev1.Secret) {
	account := s.Namespace + "/" + s.Annotations[corev1.ServiceAccountNameKey]
	c.Tokens[account] = append(c.Tokens[account], s.Name)
	switch {
	case !isFilled(&s):
		c.Unfilled++
	case s.Labels[madeLabel] == "":
		c.Own++
	default:
		c.Filled++
		c.example = s
	}
}

// Accepted has kube-apiserver review one of the tokens that were counted.
func (w *World) Accepted(ctx context.Context, c *Census) error {
	review, err := w.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: string(c.example.Data[corev1.ServiceAccountTokenKey])},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("review the token of Secret %s/%s: %w", c.example.Namespace, c.example.Name, err)
	}
	want := "system:serviceaccount:" + c.example.Namespace + ":" + c.example.Annotations[corev1.ServiceAccountNameKey]
	if got := review.Status.User.Username; got != want {
		return fmt.Errorf("a token of %s is reviewed as one of %q: %s", want, got, review.Status.Error)
	}
	return nil
}

// Check is one count and what it has to be.
type Check struct {
	What      string
	Got, Want int
}

// Verify returns an error for every count that is not what it has to be: what was
// measured then is no measurement.
func Verify(checks ...Check) error {
	var errs []error
	for _, c := range checks {
		if c.Got != c.Want {
			errs = append(errs, fmt.Errorf("%s: the API has %d, want %d", c.What, c.Got, c.Want))
		}
	}
	return errors.Join(errs...)
}
