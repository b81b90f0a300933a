// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// The names in the demonstration.
const (
	namespace    = "demo"
	account      = "default"
	otherAccount = "builder"
	handmade     = "handmade"

	// user is what kube-apiserver calls the account.
	user = "system:serviceaccount:" + namespace + ":" + account

	// drainLimit is within which the manager promises to end.
	drainLimit = 10 * time.Second
)

// tokens is the demonstration of accounts, token Secrets and Pods. A step finds in it what
// earlier ones left.
type tokens struct {
	*story

	webhookPort int

	account *corev1.ServiceAccount // the namespace's default account
	secret  *corev1.Secret         // the token Secret made for it
}

func showTokens(ctx context.Context, s *story) (err error) {
	s.Linef("sa-controller-manager beside a real kube-apiserver\n")
	d := &tokens{story: s}
	if d.webhookPort, err = devcluster.FreePort(); err != nil {
		return err
	}
	if s.binary, err = devcluster.FindBinary(ctx); err != nil {
		return err
	}
	if err := s.startCluster(ctx, devcluster.Options{}); err != nil {
		return err
	}
	flags := []string{"--token-secrets=auto", "--leader-elect=true"}
	if err := s.runManager(ctx, flags...); err != nil {
		return err
	}
	s.Ready("sa-controller-manager " + strings.Join(flags, " "))
	return s.show(ctx, append(d.tokenSteps(), d.podSteps()...))
}

// tokenSteps are about accounts and their token Secrets.
func (d *tokens) tokenSteps() []step {
	return []step{
		{
			"A new namespace gets its account",
			"an account " + account + " in the new namespace", d.namespaceGetsAccount,
		},
		{
			"The account gets a token Secret",
			"one complete token Secret of the account, referenced from its list of secrets", d.accountGetsSecret,
		},
		{
			"The token names its account",
			"the header and claims of a legacy token of this account, Secret and key", d.tokenNamesAccount,
		},
		{
			"kube-apiserver accepts the token",
			"a TokenReview that names the account and its groups", d.apiServerAcceptsToken,
		},
		{
			"A client uses the token",
			"the identity of the account, and a refusal by RBAC that names it", d.clientUsesToken,
		},
		{
			"A deleted Secret is replaced",
			"no reference to the deleted Secret, and a new one under a new name", d.deletedSecretIsReplaced,
		},
		{
			"A Secret made by hand is filled, and the Secrets of a deleted account are deleted",
			"a complete Secret, then none of the account's Secrets left", d.deletedAccountTakesSecrets,
		},
		{
			"The default account comes back",
			"a new account of that name with a new UID and a new token Secret", d.defaultAccountComesBack,
		},
		{
			"The manager stops in order",
			"exit code 0 within ten seconds of SIGTERM", d.managerStops,
		},
	}
}

func (d *tokens) namespaceGetsAccount(ctx context.Context) (err error) {
	if err := d.createNamespace(ctx, namespace); err != nil {
		return err
	}
	d.Notef("created", "namespace %s", namespace)
	if d.account, err = d.awaitAccount(ctx, namespace, account, otherThan("")); err != nil {
		return err
	}
	d.Notef("observed", "serviceaccount %s/%s, uid %s", namespace, account, d.account.UID)
	return nil
}

func (d *tokens) accountGetsSecret(ctx context.Context) (err error) {
	if d.secret, err = d.awaitTokenSecret(ctx, namespace, account); err != nil {
		return err
	}
	d.Notef("observed", "secret %s/%s, made by the manager", namespace, d.secret.Name)
	d.Notef("", "type %s, labels %s", d.secret.Type, labels.FormatLabels(d.secret.Labels))
	d.Notef("observed", "serviceaccount %s/%s lists it in secrets", namespace, account)
	return d.checkContent(d.secret, d.account.UID)
}

func (d *tokens) tokenNamesAccount(context.Context) error {
	token := tokenOf(d.secret)
	header, claims, err := decodeToken(token)
	if err != nil {
		return err
	}
	d.Notef("header", "%s", indentJSON(header))
	d.Notef("claims", "%s", indentJSON(claims))
	d.Notef("signature", "%d bytes, not shown", base64.RawURLEncoding.DecodedLen(len(token)-strings.LastIndex(token, ".")-1))
	kid, err := keyID(d.cluster.SigningKeyFile())
	if err != nil {
		return err
	}
	if want := map[string]any{"alg": "RS256", "kid": kid}; !maps.Equal(header, want) {
		return fmt.Errorf("another header than %s", indentJSON(want))
	}
	// The claims that kube-controller-manager writes: no audience, no times.
	const prefix = "kubernetes.io/serviceaccount/"
	want := map[string]any{
		"iss":                           "kubernetes/serviceaccount",
		"sub":                           user,
		prefix + "namespace":            namespace,
		prefix + "secret.name":          d.secret.Name,
		prefix + "service-account.name": account,
		prefix + "service-account.uid":  string(d.account.UID),
	}
	if !maps.Equal(claims, want) {
		return fmt.Errorf("other claims than %s", indentJSON(want))
	}
	return nil
}

func (d *tokens) apiServerAcceptsToken(ctx context.Context) error {
	review, err := d.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: tokenOf(d.secret)},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	d.Notef("observed", "authenticated %t", review.Status.Authenticated)
	if !review.Status.Authenticated {
		return fmt.Errorf("not authenticated: %s", review.Status.Error)
	}
	return d.checkUser(review.Status.User)
}

func (d *tokens) clientUsesToken(ctx context.Context) error {
	client, err := clientWith(d.cluster, tokenOf(d.secret), &warnings{printer: d.printer})
	if err != nil {
		return err
	}
	d.Notef("request", "POST selfsubjectreviews with the token as its only credential")
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := d.checkUser(self.Status.UserInfo); err != nil {
		return err
	}
	d.Notef("request", "GET secret %s/%s with the token", namespace, d.secret.Name)
	_, err = client.CoreV1().Secrets(namespace).Get(ctx, d.secret.Name, metav1.GetOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), user) {
		return fmt.Errorf("no refusal that names the user, but: %w", orNil(err))
	}
	d.Notef("refused", "403: %s", err)
	return nil
}

func (d *tokens) deletedSecretIsReplaced(ctx context.Context) error {
	old := d.secret.Name
	if err := d.client.CoreV1().Secrets(namespace).Delete(ctx, old, metav1.DeleteOptions{}); err != nil {
		return err
	}
	d.Notef("deleted", "secret %s/%s", namespace, old)
	_, err := d.awaitAccount(ctx, namespace, account, func(account *corev1.ServiceAccount) error {
		if slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == old }) {
			return fmt.Errorf("serviceaccount %s still lists %s", account.Name, old)
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.Notef("observed", "serviceaccount %s/%s no longer lists it", namespace, account)
	if d.secret, err = d.awaitTokenSecret(ctx, namespace, account); err != nil {
		return err
	}
	if d.secret.Name == old {
		return fmt.Errorf("secret %s again: its token would be the revoked one", old)
	}
	d.Notef("observed", "secret %s/%s, made by the manager, is listed instead", namespace, d.secret.Name)
	return d.checkContent(d.secret, d.account.UID)
}

func (d *tokens) deletedAccountTakesSecrets(ctx context.Context) error {
	accounts, byHand := d.client.CoreV1().ServiceAccounts(namespace), otherAccount+"-"+handmade
	object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: otherAccount}}
	object, err := accounts.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	uid := object.UID
	d.Notef("created", "serviceaccount %s/%s", namespace, otherAccount)
	own, err := d.awaitTokenSecret(ctx, namespace, otherAccount)
	if err != nil {
		return err
	}
	d.Notef("observed", "secret %s/%s, made by the manager", namespace, own.Name)
	if err := d.createTokenSecret(ctx, namespace, byHand, otherAccount); err != nil {
		return err
	}
	filled, err := d.awaitFilled(ctx, namespace, byHand)
	if err != nil {
		return err
	}
	if err := d.checkContent(filled, uid); err != nil {
		return err
	}
	d.Notef("observed", "secret %s/%s, filled by the manager", namespace, byHand)
	if err := accounts.Delete(ctx, otherAccount, metav1.DeleteOptions{}); err != nil {
		return err
	}
	d.Notef("deleted", "serviceaccount %s/%s", namespace, otherAccount)
	if _, err := await.Secrets(ctx, d.client, namespace, await.Gone[*corev1.Secret](own.Name, byHand)); err != nil {
		return err
	}
	d.Notef("observed", "both secrets are gone")
	return nil
}

func (d *tokens) defaultAccountComesBack(ctx context.Context) error {
	old := d.account
	if err := d.client.CoreV1().ServiceAccounts(namespace).Delete(ctx, account, metav1.DeleteOptions{}); err != nil {
		return err
	}
	d.Notef("deleted", "serviceaccount %s/%s, uid %s", namespace, account, old.UID)
	found, err := d.awaitAccount(ctx, namespace, account, otherThan(old.UID))
	if err != nil {
		return err
	}
	d.Notef("observed", "serviceaccount %s/%s, uid %s", namespace, account, found.UID)
	secret, err := d.awaitTokenSecret(ctx, namespace, account)
	if err != nil {
		return err
	}
	d.Notef("observed", "secret %s/%s, made by the manager", namespace, secret.Name)
	if _, err := await.Secrets(ctx, d.client, namespace, await.Gone[*corev1.Secret](d.secret.Name)); err != nil {
		return err
	}
	d.Notef("observed", "secret %s/%s is gone", namespace, d.secret.Name)
	return d.checkContent(secret, found.UID)
}

func (d *tokens) managerStops(context.Context) error {
	exit, err := d.manager.Stop()
	if err != nil {
		return err
	}
	d.Notef("observed", "SIGTERM, then exit code %d after %s", exit.Code, rounded(exit.Took))
	if exit.Code != 0 || exit.Took > drainLimit {
		return fmt.Errorf("exit code %d after %s", exit.Code, rounded(exit.Took))
	}
	return nil
}
