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
	"sa-controller-manager/test/must"
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

func showTokens(ctx context.Context, s *story) {
	s.linef("sa-controller-manager beside a real kube-apiserver\n")
	d := &tokens{story: s}
	d.webhookPort = must.Get(devcluster.FreePort())
	s.binary = must.Get(devcluster.FindBinary(ctx))
	s.startCluster(ctx, devcluster.Options{})
	flags := []string{"--token-secrets=auto", "--leader-elect=true"}
	d.run(ctx, flags...)
	s.ready("sa-controller-manager %s", strings.Join(flags, " "))
	s.show(ctx, slices.Concat(d.tokenSteps(), d.podSteps()))
}

// run starts a manager and waits until it is ready.
func (d *tokens) run(ctx context.Context, flags ...string) {
	d.manager = must.Get(d.binary.StartManager(d.cluster, flags...))
	d.managerReady(ctx)
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

func (d *tokens) namespaceGetsAccount(ctx context.Context) {
	d.createNamespace(ctx, namespace)
	d.notef("created", "namespace %s", namespace)
	accounts := must.Get(await.ServiceAccounts(ctx, d.client, namespace, await.Named[*corev1.ServiceAccount](account)))
	d.account, _ = await.Find(accounts, account)
	d.notef("observed", "serviceaccount %s/%s, uid %s", namespace, account, d.account.UID)
}

func (d *tokens) accountGetsSecret(ctx context.Context) {
	d.secret = d.awaitTokenSecret(ctx, namespace, account, "")
	d.notef("observed", "secret %s/%s, made by the manager", namespace, d.secret.Name)
	d.notef("observed", "serviceaccount %s/%s lists it in secrets", namespace, account)
	d.checkContent(d.secret, d.account.UID)
}

// tokenNamesAccount compares the header with that of a token of kube-apiserver, which has the same key.
func (d *tokens) tokenNamesAccount(ctx context.Context) {
	header, claims, err := decode(tokenOf(d.secret))
	must.Do(err)
	d.notef("header", "%s", indented(header))
	d.notef("claims", "%s", indented(claims))
	bound := must.Get(d.client.CoreV1().ServiceAccounts(namespace).
		CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{}))
	if want, _, err := decode(bound.Status.Token); err != nil || len(header) != 2 || !maps.Equal(header, want) {
		must.Do(fmt.Errorf("another header than %s: %w", indented(want), err))
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
	must.Not(!maps.Equal(claims, want), "other claims than %s", indented(want))
}

func (d *tokens) apiServerAcceptsToken(ctx context.Context) {
	review, err := d.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: tokenOf(d.secret)},
	}, metav1.CreateOptions{})
	must.Do(err)
	d.notef("observed", "authenticated %t", review.Status.Authenticated)
	if !review.Status.Authenticated {
		must.Do(errors.New(review.Status.Error))
	}
	info := review.Status.User
	d.notef("user", "%s, uid %s", info.Username, info.UID)
	d.notef("groups", "%s", strings.Join(info.Groups, ", "))
	must.Not(info.Username != user || info.UID != string(d.account.UID), "another user than %s, uid %s", user, d.account.UID)
	// kube-apiserver adds its own groups, such as system:authenticated.
	for _, group := range []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace} {
		must.Not(!slices.Contains(info.Groups, group), "not in group %s", group)
	}
}

// forbidden is an error unless err is a refusal that has the reason. It prints the refusal.
func (s *story) forbidden(err error, reason string) {
	must.Not(!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), reason), "no refusal with %q, but: %v", reason, err)
	s.notef("refused", "403: %s", err)
}

func (d *tokens) deletedSecretIsReplaced(ctx context.Context) {
	old := d.secret.Name
	must.Do(d.client.CoreV1().Secrets(namespace).Delete(ctx, old, metav1.DeleteOptions{}))
	d.notef("deleted", "secret %s/%s", namespace, old)
	d.secret = d.awaitTokenSecret(ctx, namespace, account, old)
	d.notef("observed", "serviceaccount %s/%s lists secret %s, made by the manager, instead", namespace, account, d.secret.Name)
	d.checkContent(d.secret, d.account.UID)
}

func (d *tokens) deletedAccountTakesSecrets(ctx context.Context) {
	accounts := d.client.CoreV1().ServiceAccounts(namespace)
	other := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: otherAccount}}
	object := must.Get(accounts.Create(ctx, other, metav1.CreateOptions{}))
	d.notef("created", "serviceaccount %s/%s", namespace, otherAccount)
	own := d.awaitTokenSecret(ctx, namespace, otherAccount, "")
	d.notef("observed", "secret %s/%s, made by the manager", namespace, own.Name)
	d.createTokenSecret(ctx, namespace, handmade, otherAccount)
	filled := d.awaitFilled(ctx, namespace, handmade)
	d.checkContent(filled, object.UID)
	d.notef("observed", "secret %s/%s, filled by the manager", namespace, handmade)
	must.Do(accounts.Delete(ctx, otherAccount, metav1.DeleteOptions{}))
	d.notef("deleted", "serviceaccount %s/%s", namespace, otherAccount)
	must.Get(await.Secrets(ctx, d.client, namespace, await.Gone[*corev1.Secret](own.Name, handmade)))
	d.notef("observed", "both secrets are gone")
}

func (d *tokens) managerStops(context.Context) {
	exit := must.Get(d.manager.Stop())
	d.notef("observed", "SIGTERM, then exit code %d after %s", exit.Code, rounded(exit.Took))
	must.Not(exit.Code != 0 || exit.Took > drainLimit, "exit code %d after %s", exit.Code, rounded(exit.Took))
}
