// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

const issuer = "https://kubernetes.default.svc.cluster.local"

// sign makes a bound token the way that kube-apiserver does.
func sign(t *testing.T, key *signing.PrivateKey, account *corev1.ServiceAccount) string {
	t.Helper()
	token, err := tokens.NewIssuer(key, tokens.CompatClaims).Bound(t.Context(), tokens.BoundRequest{
		Issuer: issuer, Audiences: []string{issuer}, Lifetime: time.Hour,
		Account: tokens.Account{Namespace: account.Namespace, Name: account.Name, UID: string(account.UID)},
	})
	testutil.Must(t, err)
	return token
}

func (n *node) defaultAccount(t *testing.T) *corev1.ServiceAccount {
	t.Helper()
	account, err := n.client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
	testutil.Must(t, err)
	return account
}

// allAccepted asks until kube-apiserver has answered; it may be on its way out or in.
func (n *node) allAccepted(t *testing.T, when string, all map[string]string) {
	t.Helper()
	n.reviewed(t, when, all, true)
}

// reviewed asks until kube-apiserver accepts all tokens, or refuses them.
func (n *node) reviewed(t *testing.T, when string, all map[string]string, accepted bool) {
	t.Helper()
	for whose, token := range all {
		poll(t, when+", the token "+whose, func(ctx context.Context) error {
			review, err := n.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: token},
			}, metav1.CreateOptions{})
			if err == nil && review.Status.Authenticated != accepted {
				err = fmt.Errorf("it is accepted: %t, want %t: %s", !accepted, accepted, review.Status.Error)
			}
			return err
		})
	}
}
