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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

// Census is what the API holds of the measurement's own, counted from complete lists.
type Census struct {
	Accounts map[string]int // by name
	RootCAs  int
	Filled   int // token Secrets that the measurement has made and a controller has filled
	Unfilled int
	Own      int // filled token Secrets that a token controller has made
	// Tokens are the token Secrets by account, as namespace/name.
	Tokens map[string][]string

	example *corev1.Secret // one that is filled
}

// Count counts in the namespaces that Namespace names.
func (w *World) Count(ctx context.Context) (*Census, error) {
	c := &Census{Accounts: map[string]int{}, Tokens: map[string][]string{}}
	core := w.Client.CoreV1()
	err := errors.Join(
		each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.ServiceAccounts("").List(ctx, o)
		}, c.account),
		each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.ConfigMaps("").List(ctx, o)
		}, c.configMap),
		each(ctx, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = "type=" + string(corev1.SecretTypeServiceAccountToken)
			return core.Secrets("").List(ctx, o)
		}, c.secret),
	)
	return c, err
}

func each[T metav1.Object](ctx context.Context, list pager.ListPageFunc, count func(T)) error {
	return pager.New(list).EachListItem(ctx, metav1.ListOptions{Limit: 1000}, func(object runtime.Object) error {
		if o := object.(T); strings.HasPrefix(o.GetNamespace(), "bench-") {
			count(o)
		}
		return nil
	})
}

func (c *Census) account(a *corev1.ServiceAccount) { c.Accounts[accountKind(a.Name)]++ }

// accountKind is the name without the number that the measurement gives its accounts.
func accountKind(name string) string { return strings.TrimRight(name, "-0123456789") }

func (c *Census) configMap(m *corev1.ConfigMap) {
	if m.Name == RootCAName && m.Data["ca.crt"] != "" {
		c.RootCAs++
	}
}

func (c *Census) secret(s *corev1.Secret) {
	key := s.Namespace + "/" + s.Annotations[corev1.ServiceAccountNameKey]
	c.Tokens[key] = append(c.Tokens[key], s.Name)
	switch filled := IsFilled(s); {
	case !filled:
		c.Unfilled++
	case IsOurs(s):
		c.Filled++
		c.example = s
	default:
		c.Own++
	}
}

// Judge has kube-apiserver say whether it takes one of the tokens that were counted.
func (w *World) Judge(ctx context.Context, c *Census) error {
	if c.example == nil {
		return errors.New("no token Secret is filled")
	}
	review, err := w.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: string(c.example.Data[corev1.ServiceAccountTokenKey])},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("review a token: %w", err)
	}
	want := "system:serviceaccount:" + c.example.Namespace + ":" + c.example.Annotations[corev1.ServiceAccountNameKey]
	if !review.Status.Authenticated || review.Status.User.Username != want {
		return fmt.Errorf("kube-apiserver does not take the token of Secret %s/%s for %s: %s", c.example.Namespace, c.example.Name, want,
			review.Status.Error)
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
