// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/paging"
)

const (
	// These end with a command that says who leads.
	fixAbsent = "the controllers create it within seconds, here or in kube-controller-manager: see the log of the leader, {leaders}"
	fixSecret = "the token controller repairs it within seconds: see its Events and the log of the leader: " +
		"kubectl get events -A --field-selector reportingComponent=sa-controller-manager{flags}; {leaders}"
)

var (
	noAccount = check.Fact{
		Code: "no-default-account", Message: "namespaces without the account default", Cost: "no Pod can be created there", Remedy: fixAbsent,
	}
	noRootCA = check.Fact{
		Code: "no-root-ca", Message: "namespaces without a root CA in the ConfigMap " + informers.RootCAName,
		Cost: "Pods do not start there", Remedy: fixAbsent,
	}
	rootCADiffers = check.Fact{
		Code: "root-ca-differs", Message: "namespaces whose ConfigMap " + informers.RootCAName + " differs from {source}",
		Cost: "Pods there trust another kube-apiserver",
		Remedy: "the root CA publisher repairs it within seconds: check that all replicas have the same --root-ca-file, and see the log of " +
			"the leader, {leaders}",
	}

	nameless = check.Fact{
		Code: "secret-without-account", Message: "token Secrets that name no valid account", Cost: "they get no token",
		Remedy: "correct the annotation kubernetes.io/service-account.name, or delete the Secret",
	}
	orphan = check.Fact{
		Code: "secret-orphan", Message: "token Secrets whose account does not exist, or was deleted and created again",
		Cost: "kube-apiserver refuses these tokens", Remedy: "delete the Secrets, or leave that to the token controller: " + fixSecret,
	}
	empty = check.Fact{
		Code: "secret-empty", Message: "token Secrets without a token", Cost: "Pods that mount them do not start", Remedy: fixSecret,
	}
	immutable = check.Fact{
		Code: "secret-immutable", Message: "immutable token Secrets that lack a token or the root CA", Cost: "no controller can fill them",
		Remedy: "delete them, and create them again without immutable",
	}
	drifted = check.Fact{
		Code: "secret-root-ca-differs", Message: "token Secrets with another root CA than the published one",
		Cost: "what uses them trusts another kube-apiserver", Remedy: fixSecret,
	}
	autoCreated = check.Fact{
		Code: "secrets-auto-created", Message: "token Secrets that --token-secrets=auto has created, and Pods need only with --pod-token=secret",
		Cost: "their tokens never expire",
		Remedy: "start sa-controller-manager with --token-secrets=manual, or with --token-secrets-excluded-namespaces; then delete the unused " +
			"ones, which this lists: sa-controller-manager tokens audit{flags}",
	}
	unattributed = check.Fact{
		Code: "unattributed-reference", Message: "accounts list Secrets that do not exist",
		Cost:   "nothing; no token controller removes entries that it has not written",
		Remedy: "create the Secret, or remove the entry:",
	}
)

// checkNamespaces finds namespaces without the default account or the right root CA.
func (c *cluster) checkNamespaces(ctx context.Context) (found check.Result, err error) {
	namespaces, err := c.activeNamespaces(ctx)
	if err == nil && len(namespaces) == 0 {
		return check.Skip(fmt.Sprintf("no namespaces older than %s", c.Grace)), nil
	}
	if err != nil {
		return found, err
	}
	accounts, err := c.accountUIDs(ctx)
	if err != nil {
		return found, err
	}
	rootCAs, err := c.rootCAs(ctx)
	if err != nil {
		return found, err
	}
	var without, bare, others []string
	for _, namespace := range namespaces {
		if _, has := accounts[cache.NewObjectName(namespace, "default")]; !has {
			without = append(without, namespace)
		}
		switch published := rootCAs.published[namespace]; {
		case len(published) == 0:
			bare = append(bare, namespace)
		case !rootCAs.wanted.fits(published):
			others = append(others, namespace)
		}
	}
	source := rootCAs.wanted.source
	found.Findings = slices.Concat(noAccount.Found("{leaders}", c.leaders()).About(without), noRootCA.Found("{leaders}", c.leaders()).About(bare),
		rootCADiffers.Found("{leaders}", c.leaders(), "{source}", source).About(others))
	found.Note = fmt.Sprintf("namespaces: %d, compared with %s", len(namespaces), source)
	return found, nil
}

// activeNamespaces returns the namespaces that are older than the grace period.
func (c *cluster) activeNamespaces(ctx context.Context) (names []string, err error) {
	err = paging.Each(ctx, "namespaces", c.Client.CoreV1().Namespaces().List, metav1.ListOptions{}, func(page *corev1.NamespaceList) error {
		for i := range page.Items {
			if namespace := &page.Items[i]; c.settled(namespace.ObjectMeta) {
				names = append(names, namespace.Name)
			}
		}
		return nil
	})
	return names, err
}

// checkSecrets finds token Secrets that are not as the token controller keeps them.
func (c *cluster) checkSecrets(ctx context.Context) (found check.Result, err error) {
	secrets, err := c.tokenSecrets(ctx)
	if err != nil {
		return found, err
	}
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(s tokenSecret) bool { return !c.settled(s.ObjectMeta) })
	if len(secrets) == 0 {
		return check.Skip(fmt.Sprintf("no token Secrets older than %s", c.Grace)), nil
	}
	accounts, err := c.accountUIDs(ctx)
	if err != nil {
		return found, err
	}
	rootCAs, err := c.rootCAs(ctx)
	if err != nil {
		return found, err
	}
	names := map[string][]string{}
	for _, secret := range secrets {
		if fact := flawOf(secret, accounts, rootCAs.wanted); fact != nil {
			names[fact.Code] = append(names[fact.Code], secret.name())
		}
		// Successors of re-issued tokens are created in every mode.
		if secret.AutoCreated() && secret.Predecessor.Name == "" {
			names[autoCreated.Code] = append(names[autoCreated.Code], secret.name())
		}
	}
	for _, fact := range []check.Fact{nameless, orphan, empty, immutable, drifted, autoCreated} {
		found.Findings = append(found.Findings, fact.Found("{leaders}", c.leaders()).About(names[fact.Code])...)
	}
	found.Note = fmt.Sprintf("token Secrets: %d", len(secrets))
	return found, nil
}

// flawOf returns the first that a Secret has, nil for none.
func flawOf(secret tokenSecret, accounts map[cache.ObjectName]types.UID, wanted wantedRootCA) *check.Fact {
	uid, exists := accounts[secret.Account()]
	tokenless := secret.Token == nil
	strange := len(secret.bundle) > 0 && len(wanted.least) > 0 && !wanted.fits(secret.bundle)
	switch {
	case secret.AccountName == "":
		return &nameless
	case !exists || secret.AccountUID != "" && secret.AccountUID != uid:
		return &orphan
	case secret.Immutable && (tokenless || strange):
		return &immutable
	case tokenless:
		return &empty
	case strange:
		return &drifted
	}
	return nil
}

// checkReferences finds the entries of accounts' secrets lists that name no Secret, and that no
// token controller removes, because a user may have written them before the Secret.
func (c *cluster) checkReferences(ctx context.Context) (found check.Result, err error) {
	secrets, err := c.tokenSecrets(ctx)
	if err != nil {
		return found, err
	}
	known := sets.New[cache.ObjectName]()
	for _, secret := range secrets {
		known.Insert(secret.ObjectName())
	}
	accounts := 0
	finding := unattributed.Found()
	list := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceAll).List
	err = paging.Each(ctx, "ServiceAccounts", list, metav1.ListOptions{}, func(page *corev1.ServiceAccountList) error {
		for i := range page.Items {
			account := &page.Items[i]
			if !c.settled(account.ObjectMeta) {
				continue
			}
			accounts++
			missing, err := c.missingReferences(ctx, account, known)
			if err != nil {
				return err
			}
			if len(missing) > 0 {
				finding.Objects = append(finding.Objects, fmt.Sprintf("%s/%s (%s)", account.Namespace, account.Name, strings.Join(missing, " ")))
				finding.Commands = append(finding.Commands, removeReferences(account, missing))
			}
		}
		return nil
	})
	if accounts == 0 && err == nil {
		return check.Skip(fmt.Sprintf("no accounts older than %s", c.Grace)), nil
	}
	return check.Result{Findings: finding.About(finding.Objects), Note: fmt.Sprintf("%d accounts", accounts)}, err
}

// missingReferences asks kube-apiserver for Secrets of other types, which a list may name, too.
func (c *cluster) missingReferences(ctx context.Context, account *corev1.ServiceAccount,
	known sets.Set[cache.ObjectName]) ([]string, error) {
	var failed error
	missing := tokensecrets.UnattributedReferences(account, func(name string) bool {
		secret := cache.NewObjectName(account.Namespace, name)
		// An invalid name must get neither into a request nor into a shell command.
		if failed != nil || known.Has(secret) || len(validation.IsDNS1123Subdomain(name)) > 0 {
			return true
		}
		live, err := tokensecrets.LiveSecret(ctx, c.Client, secret)
		failed = err
		return live != nil
	})
	return missing, failed
}

func removeReferences(account *corev1.ServiceAccount, names []string) string {
	var entries []string
	for _, name := range names {
		entries = append(entries, fmt.Sprintf(`{"$patch":"delete","name":%q}`, name))
	}
	return fmt.Sprintf("kubectl --namespace=%s patch serviceaccount %s --patch='{\"secrets\":[%s]}'{flags}", account.Namespace, account.Name,
		strings.Join(entries, ","))
}
