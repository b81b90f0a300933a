// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/paging"
)

var noAccount = check.Fact{
	Code: "no-default-account", Message: "namespaces without the account default", Cost: "no Pod can be created there",
	Remedy: "the controller, here or in kube-controller-manager, creates it within seconds: see the log of the leader, which " +
		"kubectl get leases -A{flags} names",
}

// checkNamespaces finds namespaces without the default account or the right root CA.
func (c *cluster) checkNamespaces(ctx context.Context) (check.Result, error) {
	var namespaces []string
	err := paging.Each(ctx, "namespaces", c.Client.CoreV1().Namespaces().List,
		metav1.ListOptions{}, func(page *corev1.NamespaceList) error {
			for i := range page.Items {
				if namespace := &page.Items[i]; c.settled(namespace.ObjectMeta) {
					namespaces = append(namespaces, namespace.Name)
				}
			}
			return nil
		})
	if err == nil && len(namespaces) == 0 {
		return check.Skip(fmt.Sprintf("no namespaces older than %s", c.Grace)), nil
	}
	if err != nil {
		return check.Result{}, err
	}
	accounts, err := c.accounts(ctx)
	if err != nil {
		return check.Result{}, err
	}
	published, err := c.rootCAs(ctx)
	if err != nil {
		return check.Result{}, err
	}
	var without []string
	for _, namespace := range namespaces {
		if _, has := accounts.uids[cache.NewObjectName(namespace, "default")]; !has {
			without = append(without, namespace)
		}
	}
	return check.Result{
		Findings: append(noAccount.Found().About(without), published.Findings(namespaces)...),
		Note:     fmt.Sprintf("namespaces: %d, compared with %s", len(namespaces), published.Source),
	}, nil
}

// checkTrustBundle finds out whether the ClusterTrustBundle has the root CA of the namespaces.
func (c *cluster) checkTrustBundle(ctx context.Context) (check.Result, error) {
	published, err := c.rootCAs(ctx)
	if err != nil {
		return check.Result{}, err
	}
	return published.TrustBundles(ctx, c.Client)
}

// checkSecrets finds token Secrets that are not as the token controller keeps them.
func (c *cluster) checkSecrets(ctx context.Context) (check.Result, error) {
	all, err := c.tokenSecrets(ctx)
	if err != nil {
		return check.Result{}, err
	}
	var secrets []*tokensecrets.TokenSecret
	copies := map[*tokensecrets.TokenSecret]rootca.Certificates{}
	for _, secret := range all {
		if c.settled(secret.ObjectMeta) {
			secrets, copies[secret.TokenSecret] = append(secrets, secret.TokenSecret), secret.rootCA
		}
	}
	if len(secrets) == 0 {
		return check.Skip(fmt.Sprintf("no token Secrets older than %s", c.Grace)), nil
	}
	accounts, err := c.accounts(ctx)
	if err != nil {
		return check.Result{}, err
	}
	published, err := c.rootCAs(ctx)
	if err != nil {
		return check.Result{}, err
	}
	strange := func(secret *tokensecrets.TokenSecret) bool { return published.Strange(copies[secret]) }
	return check.Result{
		Findings: tokensecrets.Findings(secrets, accounts.uids, strange), Note: fmt.Sprintf("token Secrets: %d", len(secrets)),
	}, nil
}

// checkReferences finds entries of accounts' secrets lists that name no Secret.
func (c *cluster) checkReferences(ctx context.Context) (check.Result, error) {
	secrets, err := c.tokenSecrets(ctx)
	if err != nil {
		return check.Result{}, err
	}
	accounts, err := c.accounts(ctx)
	if err != nil {
		return check.Result{}, err
	}
	if len(accounts.uids) == 0 {
		return check.Skip("no accounts"), nil
	}
	known := map[cache.ObjectName]bool{}
	for _, secret := range secrets {
		known[secret.ObjectName()] = true
	}
	findings, err := tokensecrets.FindReferences(ctx, c.Client, accounts.referring, func(name cache.ObjectName) bool { return known[name] })
	return check.Result{Findings: findings, Note: fmt.Sprintf("accounts: %d", len(accounts.uids))}, err
}

// tokenSecret is what is kept of a token Secret: never the token, nor anything that it could be
// restored from.
type tokenSecret struct {
	*tokensecrets.TokenSecret

	rootCA rootca.Certificates
}

func (s tokenSecret) name() string { return s.Namespace + "/" + s.Name }

// tokenSecrets returns all token Secrets, without the tokens.
func (c *cluster) tokenSecrets(ctx context.Context) ([]tokenSecret, error) {
	return c.facts.secrets.get(ctx, func(ctx context.Context) (secrets []tokenSecret, err error) {
		list := c.Client.CoreV1().Secrets(metav1.NamespaceAll).List
		options := metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken)}
		err = paging.Each(ctx, "token Secrets", list, options, func(page *corev1.SecretList) error {
			for i := range page.Items {
				one := &page.Items[i]
				secrets = append(secrets, tokenSecret{tokensecrets.Observe(one),
					rootca.CertificatesOf(string(one.Data[corev1.ServiceAccountRootCAKey]))})
			}
			return nil
		})
		return secrets, err
	})
}
