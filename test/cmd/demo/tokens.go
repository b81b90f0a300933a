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
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// The names in the demonstration.
const (
	namespace    = "demo"
	account      = "default"
	otherAccount = "builder"
	handmade     = "builder-handmade"

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
	s.linef("sa-controller-manager beside a real kube-apiserver\n")
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
	if err := d.run(ctx, flags...); err != nil {
		return err
	}
	s.ready("sa-controller-manager %s", strings.Join(flags, " "))
	return s.show(ctx, slices.Concat(d.tokenSteps(), d.podSteps()))
}

// run starts a manager and waits until it is ready.
func (d *tokens) run(ctx context.Context, flags ...string) (err error) {
	if d.manager, err = d.binary.StartManager(d.cluster, flags...); err != nil {
		return err
	}
	return d.managerReady(ctx)
}

// tokenSteps are about accounts and their token Secrets.
func (d *tokens) tokenSteps() []step {
	return []step{
		{"A new namespace gets its account", d.namespaceGetsAccount},
		{"The account gets a token Secret", d.accountGetsSecret},
		{"The token names its account", d.tokenNamesAccount},
		{"kube-apiserver accepts the token", d.apiServerAcceptsToken},
		{"A deleted Secret is replaced", d.deletedSecretIsReplaced},
		{"A Secret made by hand is filled, and the Secrets of a deleted account are deleted", d.deletedAccountTakesSecrets},
		{"The manager stops in order", d.managerStops},
	}
}

func (d *tokens) namespaceGetsAccount(ctx context.Context) error {
	if err := d.createNamespace(ctx, namespace); err != nil {
		return err
	}
	d.notef("created", "namespace %s", namespace)
	accounts, err := await.ServiceAccounts(ctx, d.client, namespace, await.Named[*corev1.ServiceAccount](account))
	if err != nil {
		return err
	}
	d.account, _ = await.Find(accounts, account)
	d.notef("observed", "serviceaccount %s/%s, uid %s", namespace, account, d.account.UID)
	return nil
}

func (d *tokens) accountGetsSecret(ctx context.Context) (err error) {
	if d.secret, err = d.awaitTokenSecret(ctx, namespace, account, ""); err != nil {
		return err
	}
	d.notef("observed", "secret %s/%s, made by the manager", namespace, d.secret.Name)
	d.notef("observed", "serviceaccount %s/%s lists it in secrets", namespace, account)
	return d.checkContent(d.secret, d.account.UID)
}

// tokenNamesAccount compares the header with that of a token of kube-apiserver, which has the same key.
func (d *tokens) tokenNamesAccount(ctx context.Context) error {
	header, claims, err := decode(tokenOf(d.secret))
	if err != nil {
		return err
	}
	d.notef("header", "%s", indented(header))
	d.notef("claims", "%s", indented(claims))
	bound, err := d.client.CoreV1().ServiceAccounts(namespace).
		CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if want, _, err := decode(bound.Status.Token); err != nil || len(header) != 2 || !maps.Equal(header, want) {
		return fmt.Errorf("another header than %s: %w", indented(want), err)
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
		return fmt.Errorf("other claims than %s", indented(want))
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
	d.notef("observed", "authenticated %t", review.Status.Authenticated)
	if !review.Status.Authenticated {
		return errors.New(review.Status.Error)
	}
	info := review.Status.User
	d.notef("user", "%s, uid %s", info.Username, info.UID)
	d.notef("groups", "%s", strings.Join(info.Groups, ", "))
	if info.Username != user || info.UID != string(d.account.UID) {
		return fmt.Errorf("another user than %s, uid %s", user, d.account.UID)
	}
	// kube-apiserver adds its own groups, such as system:authenticated.
	for _, group := range []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace} {
		if !slices.Contains(info.Groups, group) {
			return fmt.Errorf("not in group %s", group)
		}
	}
	return nil
}

// forbidden is an error unless err is a refusal that has the reason. It prints the refusal.
func (s *story) forbidden(err error, reason string) error {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), reason) {
		return fmt.Errorf("no refusal with %q, but: %v", reason, err)
	}
	s.notef("refused", "403: %s", err)
	return nil
}

func (d *tokens) deletedSecretIsReplaced(ctx context.Context) (err error) {
	old := d.secret.Name
	if err := d.client.CoreV1().Secrets(namespace).Delete(ctx, old, metav1.DeleteOptions{}); err != nil {
		return err
	}
	d.notef("deleted", "secret %s/%s", namespace, old)
	if d.secret, err = d.awaitTokenSecret(ctx, namespace, account, old); err != nil {
		return err
	}
	d.notef("observed", "serviceaccount %s/%s lists secret %s, made by the manager, instead", namespace, account, d.secret.Name)
	return d.checkContent(d.secret, d.account.UID)
}

func (d *tokens) deletedAccountTakesSecrets(ctx context.Context) error {
	accounts := d.client.CoreV1().ServiceAccounts(namespace)
	object, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: otherAccount}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	d.notef("created", "serviceaccount %s/%s", namespace, otherAccount)
	own, err := d.awaitTokenSecret(ctx, namespace, otherAccount, "")
	if err != nil {
		return err
	}
	d.notef("observed", "secret %s/%s, made by the manager", namespace, own.Name)
	if err := d.createTokenSecret(ctx, namespace, handmade, otherAccount); err != nil {
		return err
	}
	filled, err := d.awaitFilled(ctx, namespace, handmade)
	if err != nil {
		return err
	}
	if err := d.checkContent(filled, object.UID); err != nil {
		return err
	}
	d.notef("observed", "secret %s/%s, filled by the manager", namespace, handmade)
	if err := accounts.Delete(ctx, otherAccount, metav1.DeleteOptions{}); err != nil {
		return err
	}
	d.notef("deleted", "serviceaccount %s/%s", namespace, otherAccount)
	if _, err := await.Secrets(ctx, d.client, namespace, await.Gone[*corev1.Secret](own.Name, handmade)); err != nil {
		return err
	}
	d.notef("observed", "both secrets are gone")
	return nil
}

func (d *tokens) managerStops(context.Context) error {
	exit, err := d.manager.Stop()
	if err != nil {
		return err
	}
	d.notef("observed", "SIGTERM, then exit code %d after %s", exit.Code, rounded(exit.Took))
	if exit.Code != 0 || exit.Took > drainLimit {
		return fmt.Errorf("exit code %d after %s", exit.Code, rounded(exit.Took))
	}
	return nil
}
