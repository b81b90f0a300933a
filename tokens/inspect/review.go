// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/tokens"
)

// Review is the answer of kube-apiserver.
type Review struct {
	authenticationv1.TokenReviewStatus

	// OpensAPI reports whether it is accepted for kube-apiserver's own audience, which requests need.
	OpensAPI bool `json:"opensAPI"`
}

// Reviewer is the part of kube-apiserver's API that Ask needs.
type Reviewer interface {
	Create(ctx context.Context, review *authenticationv1.TokenReview, options metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// Ask has kube-apiserver review a token: for its own audience, and if that fails for those that the token has. What is no
// token is not sent, because it may be a secret of another kind; Ask returns nil then. kube-apiserver counts the review
// as a use of a legacy token (the label kubernetes.io/legacy-token-last-used).
func Ask(ctx context.Context, reviews Reviewer, token string) (*Review, error) {
	canonical := tokens.Canonical(token)
	if _, err := tokens.Inspect(canonical); err != nil {
		return nil, nil //nolint:nilerr // Evaluate says what is wrong with it
	}
	own, err := review(ctx, reviews, token, nil)
	claims, _ := claimsOf(canonical)
	if err != nil || own.Authenticated || len(claims.Audience) == 0 {
		return own, err
	}
	return review(ctx, reviews, token, claims.Audience)
}

func review(ctx context.Context, reviews Reviewer, token string, audiences []string) (*Review, error) {
	answer, err := reviews.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil { // the server's text may hold the token
		return nil, errors.New(strings.ReplaceAll(fmt.Sprintf("have kube-apiserver review the token: %v", err), token, "<the token>"))
	}
	return &Review{TokenReviewStatus: answer.Status, OpensAPI: answer.Status.Authenticated && audiences == nil}, nil
}
