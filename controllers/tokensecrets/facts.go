// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/internal/check"
)

// repaired is the remedy of what lasts for seconds only.
const repaired = "the token controller repairs it within seconds: see its Events, and the log of the leader: " +
	"kubectl get events -A --field-selector reportingComponent=sa-controller-manager{flags}; kubectl get leases -A{flags}"

var (
	nameless = check.Fact{
		Code: "secret-without-account", Message: "token Secrets that name no valid account", Cost: "they get no token",
		Remedy: "correct the annotation kubernetes.io/service-account.name, or delete the Secret",
	}
	orphan = check.Fact{
		Code: "secret-orphan", Message: "token Secrets whose account does not exist, or was deleted and created again",
		Cost: "kube-apiserver refuses these tokens", Remedy: "delete the Secrets, or leave that to the token controller: " + repaired,
	}
	empty = check.Fact{
		Code: "secret-empty", Message: "token Secrets without a token", Cost: "what mounts them cannot use the API", Remedy: repaired,
	}
	immutable = check.Fact{
		Code: "secret-immutable", Message: "immutable token Secrets that lack a token or the root CA", Cost: "no controller can fill them",
		Remedy: "delete them, and create them again without immutable",
	}
	drifted = check.Fact{
		Code: "secret-root-ca-differs", Message: "token Secrets with another root CA than the published one",
		Cost: "what uses them trusts another kube-apiserver", Remedy: repaired,
	}
	autoCreated = check.Fact{
		Code:    "secrets-auto-created",
		Message: "token Secrets that --token-secrets=auto has created, and Pods need only with --pod-token=secret",
		Cost:    "their tokens never expire",
		Remedy: "start sa-controller-manager with --token-secrets=manual, or with --token-secrets-excluded-namespaces; then delete the " +
			"unused ones, which this lists: sa-controller-manager tokens audit{flags}",
	}
	unattributed = check.Fact{
		Code: "unattributed-reference", Message: "accounts list Secrets that do not exist",
		Cost:   "nothing; no token controller removes entries that it has not written",
		Remedy: "create the Secret, or remove the entry",
	}
)

// Findings returns how token Secrets are not as the token controller keeps them. uids are those of the accounts, and
// strange says of a Secret that it has another root CA than the published one.
func Findings(secrets []*TokenSecret, uids map[cache.ObjectName]types.UID, strange func(*TokenSecret) bool) (findings []check.Finding) {
	names := map[string][]string{}
	for _, secret := range secrets {
		name := secret.Namespace + "/" + secret.Name
		if fact := secret.flaw(uids, strange(secret)); fact != nil {
			names[fact.Code] = append(names[fact.Code], name)
		}
		// Successors of re-issued tokens are created in every mode.
		if secret.AutoCreated() && secret.Predecessor.Name == "" {
			names[autoCreated.Code] = append(names[autoCreated.Code], name)
		}
	}
	for _, fact := range []check.Fact{nameless, orphan, empty, immutable, drifted, autoCreated} {
		findings = append(findings, fact.Found().About(names[fact.Code])...)
	}
	return findings
}

// flaw returns the first that the Secret has, nil for none.
func (s *TokenSecret) flaw(uids map[cache.ObjectName]types.UID, strange bool) *check.Fact {
	uid, exists := uids[s.Account()]
	switch {
	case s.AccountName == "":
		return &nameless
	case !exists || s.AccountUID != "" && s.AccountUID != uid:
		return &orphan
	case s.Immutable && (s.Token == nil || strange):
		return &immutable
	case s.Token == nil:
		return &empty
	case strange:
		return &drifted
	}
	return nil
}

// mostAsked is how many Secrets of one account's list are looked up: a tenant may list as many names as fit an object.
const mostAsked = 20

// FindReferences finds the entries of accounts' secrets lists that name no Secret, and that no token controller removes,
// because a user may have written them before the Secret. It asks kube-apiserver for what is not known: a Secret of
// another type.
func FindReferences(ctx context.Context, client kubernetes.Interface, accounts []*corev1.ServiceAccount,
	known func(cache.ObjectName) bool) ([]check.Finding, error) {
	finding := unattributed.Found()
	for _, account := range accounts {
		failed, asked := error(nil), 0
		missing := UnattributedReferences(account, func(name string) bool {
			secret := cache.NewObjectName(account.Namespace, name)
			// An invalid name must get neither into a request nor into a shell command.
			if failed != nil || asked == mostAsked || known(secret) || len(validation.IsDNS1123Subdomain(name)) > 0 {
				return true
			}
			asked++
			live, err := LiveSecret(ctx, client, secret)
			failed = err
			return live != nil
		})
		if failed != nil {
			return finding.About(finding.Objects), failed
		}
		if len(missing) > 0 {
			more := map[bool]string{true: ", perhaps more"}[asked == mostAsked]
			finding.Objects = append(finding.Objects,
				fmt.Sprintf("%s/%s (%s%s)", account.Namespace, account.Name, strings.Join(missing, " "), more))
			finding.Commands = append(finding.Commands, removes(account, missing))
		}
	}
	return finding.About(finding.Objects), nil
}

func removes(account *corev1.ServiceAccount, names []string) string {
	const entry, next = `{"$patch":"delete","name":"`, `"},`
	return fmt.Sprintf(`kubectl --namespace=%s patch serviceaccount %s --patch='{"secrets":[%s"}]}'{flags}`, account.Namespace,
		account.Name,
		entry+strings.Join(names, next+entry))
}
