// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"
)

// Review returns the TokenReview of a token.
func (c *ControlPlane) Review(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	review, err := c.API.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("review a token: %w", err)
	}
	return review.Status, nil
}

// ExpectAccepted waits until kube-apiserver accepts the token of a Secret, and checks that it stands
// for the account. It polls because kube-apiserver reads Secrets from its own cache, whose progress
// nothing announces.
//
// A review changes the Secret: kube-apiserver sets the day of use in a label. It also caches an
// accepted token for ten seconds, so do not review a token that must be refused soon after.
func (c *ControlPlane) ExpectAccepted(t *testing.T, secret *corev1.Secret, account *corev1.ServiceAccount) {
	t.Helper()
	ctx := Context(t)
	var got authenticationv1.UserInfo
	Poll(t, "await that kube-apiserver accepts the token of "+secret.Name, func() error {
		status, err := c.Review(ctx, string(secret.Data[corev1.ServiceAccountTokenKey]))
		if err == nil && !status.Authenticated {
			err = fmt.Errorf("it is refused: %s", status.Error)
		}
		got = status.User
		return err
	})
	want := authenticationv1.UserInfo{
		Username: "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		UID:      string(account.UID),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + account.Namespace, "system:authenticated"},
	}
	testutil.Check(t, "the token of "+secret.Name+" belongs to", want, got)
}

// ExpectComplete checks the whole content of a token Secret that the product has filled.
func (c *ControlPlane) ExpectComplete(t *testing.T, secret *corev1.Secret, account *corev1.ServiceAccount) {
	t.Helper()
	type content struct {
		Type        corev1.SecretType
		Keys        []string
		CA          string
		Namespace   string
		Annotations map[string]string
		Claims      map[string]any
		HeaderKeys  []string
	}
	header, claims := decodeToken(t, secret.Data[corev1.ServiceAccountTokenKey])
	got := content{
		Type:        secret.Type,
		Keys:        slices.Sorted(maps.Keys(secret.Data)),
		CA:          string(secret.Data[corev1.ServiceAccountRootCAKey]),
		Namespace:   string(secret.Data[corev1.ServiceAccountNamespaceKey]),
		Annotations: secret.Annotations,
		Claims:      claims,
		HeaderKeys:  slices.Sorted(maps.Keys(header)),
	}
	want := content{
		Type:      corev1.SecretTypeServiceAccountToken,
		Keys:      []string{"ca.crt", "namespace", "token"},
		CA:        c.RootCA(t),
		Namespace: account.Namespace,
		Annotations: map[string]string{
			"kubernetes.io/service-account.name": account.Name,
			"kubernetes.io/service-account.uid":  string(account.UID),
		},
		Claims:     legacyClaims(account, secret.Name),
		HeaderKeys: []string{"alg", "kid"},
	}
	testutil.Check(t, "secret "+secret.Namespace+"/"+secret.Name, want, got)
}

// legacyClaims returns the claims that kube-controller-manager writes
// (pkg/serviceaccount/legacy.go).
func legacyClaims(account *corev1.ServiceAccount, secret string) map[string]any {
	return map[string]any{
		"iss":                                    "kubernetes/serviceaccount",
		"sub":                                    "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		"kubernetes.io/serviceaccount/namespace": account.Namespace,
		"kubernetes.io/serviceaccount/secret.name":          secret,
		"kubernetes.io/serviceaccount/service-account.name": account.Name,
		"kubernetes.io/serviceaccount/service-account.uid":  string(account.UID),
	}
}

// decodeToken reads a token without verifying it.
func decodeToken(t *testing.T, token []byte) (header, claims map[string]any) {
	t.Helper()
	segments := bytes.Split(token, []byte("."))
	if len(segments) != 3 {
		t.Fatalf("a token of %d segments", len(segments))
	}
	for i, target := range []*map[string]any{&header, &claims} {
		text, err := base64.RawURLEncoding.DecodeString(string(segments[i]))
		if err != nil {
			t.Fatalf("segment %d of a token: %v", i, err)
		}
		if err := json.Unmarshal(text, target); err != nil {
			t.Fatalf("segment %d of a token: %v", i, err)
		}
	}
	return header, claims
}

// KeyIDOf returns the ID of the key that signed a token.
func KeyIDOf(t *testing.T, secret *corev1.Secret) string {
	t.Helper()
	header, _ := decodeToken(t, secret.Data[corev1.ServiceAccountTokenKey])
	id, _ := header["kid"].(string)
	return id
}

// randomName returns a random part of a name.
func randomName() string { return strings.ToLower(rand.Text()[:8]) }

// cleanupContext returns a context for clean-up after the context of the test has ended.
func cleanupContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Timeout)
	t.Cleanup(cancel)
	return ctx
}
