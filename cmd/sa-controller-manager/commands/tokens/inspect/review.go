// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/tokens"
)

// Review is what kube-apiserver says of a token. Its JSON form is that of the command's output.
type Review struct {
	Authenticated bool `json:"authenticated"`
	// User, UID and Groups are whom it takes the bearer for.
	User   string   `json:"user,omitempty"`
	UID    string   `json:"uid,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// Audiences are those of the token that were asked for, all of them.
	Audiences []string `json:"audiences,omitempty"`
	// OpensAPI: it is accepted for kube-apiserver's own audience too, which is to say for requests.
	OpensAPI bool   `json:"opensAPI"`
	Error    string `json:"error,omitempty"`
}

func (r *Review) reason() string { return cmp.Or(r.Error, "it gives no reason") }

// Ask has kube-apiserver review a token: for its own audience, which is what requests need, and if
// that fails for those that the token has. What is no token at all is not sent, because it may be a
// secret of another kind; that gives nil. A legacy token that is accepted counts as used today:
// kube-apiserver notes it in the label kubernetes.io/legacy-token-last-used.
func Ask(ctx context.Context, client kubernetes.Interface, token string) (*Review, error) {
	e, err := tokens.Examine(tokens.Canonical(token))
	if err != nil {
		return nil, nil //nolint:nilerr // Evaluate says what is wrong with it
	}
	own, err := review(ctx, client, token, nil)
	if err != nil || own.Authenticated || len(e.Audiences) == 0 {
		return own, err
	}
	return review(ctx, client, token, e.Audiences)
}

func review(ctx context.Context, client kubernetes.Interface, token string, audiences []string) (*Review, error) {
	answer, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("have kube-apiserver review the token: %w", quiet(err, token))
	}
	status := answer.Status
	return &Review{
		Authenticated: status.Authenticated, User: status.User.Username, UID: status.User.UID, Groups: status.User.Groups,
		Audiences: status.Audiences, OpensAPI: status.Authenticated && len(audiences) == 0, Error: status.Error,
	}, nil
}

// quiet removes the token from an error, which may come from the server.
func quiet(err error, token string) error {
	if !strings.Contains(err.Error(), token) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), token, "<the token>"))
}
