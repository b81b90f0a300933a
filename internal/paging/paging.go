// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package paging reads long lists of the API page by page, so that memory depends on the size
// of a page and not of the cluster.
//
// It is a separate loop and not client-go's pager, which hands out single objects and asks
// for the next page while one is still in use.
package paging

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Size is how many objects a page has, unless the options have a limit.
const Size = 500

// Each calls visit with every page of a list; errors name the list as what. All pages have one
// resourceVersion: if a page is requested too late, Each returns kube-apiserver's error
// (apierrors.IsResourceExpired). visit must not keep the page.
func Each[L metav1.ListInterface](
	ctx context.Context, what string, list func(context.Context, metav1.ListOptions) (L, error), options metav1.ListOptions,
	visit func(L) error,
) error {
	options.Limit = cmp.Or(options.Limit, Size)
	for {
		page, err := list(ctx, options)
		if err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		if err := visit(page); err != nil {
			return err
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// GoingOn wraps a list for Each so that it continues if a page is requested too late, after some
// five minutes: kube-apiserver then answers with a token for the rest in its present state. Use it
// where pages of different times do no harm. Two such answers in a row are an error.
func GoingOn[L any](list func(context.Context, metav1.ListOptions) (L, error)) func(context.Context, metav1.ListOptions) (L, error) {
	return func(ctx context.Context, options metav1.ListOptions) (L, error) {
		page, err := list(ctx, options)
		status := apierrors.APIStatus(nil)
		if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) || status.Status().Continue == "" {
			return page, err
		}
		options.Continue = status.Status().Continue
		return list(ctx, options)
	}
}
