// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/test/narrate"
)

// user is what kube-apiserver calls the account.
const user = "system:serviceaccount:" + namespace + ":" + account

func groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
}

func tokenSaysWhoItIsFor(_ context.Context, s *story) error {
	token, err := decodeToken(string(s.secret.Data[corev1.ServiceAccountTokenKey]))
	if err != nil {
		return err
	}
	s.Notef("header", "%s", indentJSON(token.header))
	s.Notef("claims", "%s", indentJSON(token.claims))
	s.Notef("signature", "%d bytes, not shown", token.signatureBytes)

	kid, err := keyID(s.cluster.SigningKeyFile())
	if err != nil {
		return err
	}
	if want := map[string]any{"alg": "RS256", "kid": kid}; !maps.Equal(token.header, want) {
		return fmt.Errorf("another header than %s", indentJSON(want))
	}
	if want := legacyClaims(s.account, s.secret); !maps.Equal(token.claims, want) {
		return fmt.Errorf("other claims than %s", indentJSON(want))
	}
	return nil
}

// legacyClaims are those of kube-controller-manager: no audience, no times.
func legacyClaims(account *corev1.ServiceAccount, secret *corev1.Secret) map[string]any {
	const prefix = "kubernetes.io/serviceaccount/"
	return map[string]any{
		"iss":                           "kubernetes/serviceaccount",
		"sub":                           user,
		prefix + "namespace":            account.Namespace,
		prefix + "secret.name":          secret.Name,
		prefix + "service-account.name": account.Name,
		prefix + "service-account.uid":  string(account.UID),
	}
}

func apiServerAcceptsToken(ctx context.Context, s *story) error {
	review := &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: string(s.secret.Data[corev1.ServiceAccountTokenKey])},
	}
	review, err := s.client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("review the token: %w", err)
	}
	s.Notef("observed", "authenticated %t", review.Status.Authenticated)
	if !review.Status.Authenticated {
		return fmt.Errorf("not authenticated: %s", review.Status.Error)
	}
	return s.checkUser(review.Status.User)
}

func clientUsesToken(ctx context.Context, s *story) error {
	config := rest.AnonymousClientConfig(s.cluster.Config())
	config.BearerToken = string(s.secret.Data[corev1.ServiceAccountTokenKey])
	config.WarningHandler = &warnings{Printer: s.Printer}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client with the token: %w", err)
	}
	s.Notef("request", "POST selfsubjectreviews with the token as its only credential")
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask who I am: %w", err)
	}
	if err := s.checkUser(self.Status.UserInfo); err != nil {
		return err
	}
	s.Notef("request", "GET secret %s/%s with the token", namespace, s.secret.Name)
	_, err = client.CoreV1().Secrets(namespace).Get(ctx, s.secret.Name, metav1.GetOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), user) {
		return fmt.Errorf("no refusal that names the user, but: %w", orNil(err))
	}
	s.Notef("refused", "403: %s", err)
	return nil
}

// checkUser verifies name, UID and groups. kube-apiserver adds groups of its
// own, such as system:authenticated.
func (s *story) checkUser(info authenticationv1.UserInfo) error {
	s.Notef("user", "%s, uid %s", info.Username, info.UID)
	s.Notef("groups", "%s", strings.Join(info.Groups, ", "))
	if info.Username != user || info.UID != string(s.account.UID) {
		return fmt.Errorf("another user than %s, uid %s", user, s.account.UID)
	}
	for _, group := range groups() {
		if !slices.Contains(info.Groups, group) {
			return fmt.Errorf("not in group %s", group)
		}
	}
	return nil
}

// warnings prints what kube-apiserver has to say beside an answer, once.
type warnings struct {
	*narrate.Printer
	last string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	if text != w.last {
		w.last = text
		w.Notef("warning", "%s", text)
	}
}

func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}
