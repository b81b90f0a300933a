// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// flaw is what is wrong with a token Secret.
type flaw int

const (
	none flaw = iota
	nameless
	orphan
	stuck
	immutable
	drifted
)

// flawed is the finding about all Secrets with the same flaw.
func (c *cluster) flawed(f flaw, names []string) []finding {
	running := "the token controller repairs it within seconds: see its Events and the log of the leader: " +
		"kubectl get events -A --field-selector reportingComponent=sa-controller-manager" + c.Kubeconfig + "; " + c.leaders()
	switch f {
	case nameless:
		return about(names, "secret-without-account", "token Secrets that name no valid account",
			"correct the annotation kubernetes.io/service-account.name, or delete the Secret")
	case orphan:
		return about(names, "secret-orphan", "token Secrets whose account does not exist, or was deleted and created again",
			"kube-apiserver refuses these tokens. Delete the Secrets, or leave that to the token controller: "+running)
	case stuck:
		return about(names, "secret-empty", "token Secrets without a token", running)
	case immutable:
		return about(names, "secret-immutable", "immutable token Secrets that lack a token or the root CA",
			"delete them, and create them again without immutable")
	default:
		return about(names, "secret-root-ca-differs", "token Secrets with another root CA than the published one", running)
	}
}

// checkSecrets finds token Secrets that are not as the token controller keeps them.
func checkSecrets(ctx context.Context, c *cluster) (answer, error) {
	secrets, err := c.tokenSecrets(ctx)
	if err != nil {
		return answer{}, err
	}
	secrets = slices.DeleteFunc(slices.Clone(secrets), func(s tokenSecret) bool { return !c.settled(s.ObjectMeta) })
	if len(secrets) == 0 {
		return skipped(fmt.Sprintf("no token Secrets older than %s", c.Grace)), nil
	}
	accounts, err := c.accountUIDs(ctx)
	if err != nil {
		return answer{}, err
	}
	rootCAs, err := c.rootCAs(ctx)
	if err != nil {
		return answer{}, err
	}
	names := map[flaw][]string{}
	for _, secret := range secrets {
		if f := worstFlaw(secret, accounts, rootCAs.wanted); f != none {
			names[f] = append(names[f], secret.name())
		}
	}
	var findings []finding
	for f := nameless; f <= drifted; f++ {
		findings = append(findings, c.flawed(f, names[f])...)
	}
	findings = append(findings, about(autoCreated(secrets), "secrets-auto-created", "token Secrets that --token-secrets=auto has created: "+
		"Pods need them with --pod-token=secret alone, and their tokens never expire",
		"start sa-controller-manager with --token-secrets=manual, or with --token-secrets-excluded-namespaces; "+
			"then delete the unused ones, which this lists: sa-controller-manager tokens audit"+c.Kubeconfig)...)
	return answer{Findings: findings, Note: fmt.Sprintf("token Secrets: %d", len(secrets))}, nil
}

// autoCreated returns the Secrets that --token-secrets=auto has created. Successors of re-issued
// tokens are created in every mode.
func autoCreated(secrets []tokenSecret) (names []string) {
	for _, secret := range secrets {
		if secret.AutoCreated() && secret.Predecessor.Name == "" {
			names = append(names, secret.name())
		}
	}
	return names
}

// worstFlaw returns the first of these that a Secret has.
func worstFlaw(secret tokenSecret, accounts map[cache.ObjectName]types.UID, wanted wantedRootCA) flaw {
	if secret.AccountName == "" {
		return nameless
	}
	uid, exists := accounts[secret.Account()]
	if !exists || secret.AccountUID != "" && secret.AccountUID != uid {
		return orphan
	}
	empty := secret.Token == nil
	strange := len(secret.bundle) > 0 && len(wanted.least) > 0 && !wanted.fits(secret.bundle)
	switch {
	case secret.Immutable && (empty || strange):
		return immutable
	case empty:
		return stuck
	case strange:
		return drifted
	}
	return none
}
