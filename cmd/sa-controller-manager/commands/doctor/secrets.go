// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"time"

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

// told is what is said of all Secrets with the same flaw.
func (f flaw) told(n int) (problem, mend string) {
	const running = "the token controller sees to it within seconds: see whether it runs (--only=leader), and its Events: " +
		"kubectl get events -A --field-selector reportingComponent=sa-controller-manager"
	switch f {
	case nameless:
		return count(n, "token Secret names", "token Secrets name") + " no account that could exist",
			"correct the annotation kubernetes.io/service-account.name, or delete the Secret"
	case orphan:
		return count(n, "token Secret is an orphan", "token Secrets are orphans") + ": the account does not exist, or is another one now",
			"no token of a Secret without its account is accepted; " + running + "; or delete it"
	case stuck:
		return count(n, "token Secret has", "token Secrets have") + " been without a token for too long", running
	case immutable:
		return count(n, "immutable token Secret lacks", "immutable token Secrets lack") + " a token or the root CA", "delete it and create it without immutable"
	default:
		return count(n, "token Secret holds", "token Secrets hold") + " another root CA than is published", running
	}
}

// checkSecrets finds token Secrets that the token controller has not seen to.
func checkSecrets(ctx context.Context, c *Cluster) (Answer, error) {
	secrets, err := c.tokenSecrets(ctx)
	if err != nil {
		return Answer{}, err
	}
	accounts, err := c.accountUIDs(ctx)
	if err != nil {
		return Answer{}, err
	}
	rootCAs, err := c.rootCAs(ctx)
	if err != nil {
		return Answer{}, err
	}
	now := c.Clock.Now()
	names := map[flaw][]string{}
	for _, secret := range secrets {
		if f := judge(secret, accounts, rootCAs.wanted, now, c.Grace); f != none {
			names[f] = append(names[f], secret.name())
		}
	}
	var findings []Finding
	for f := nameless; f <= drifted; f++ {
		if len(names[f]) > 0 {
			problem, mend := f.told(len(names[f]))
			findings = append(findings, found(problem, mend, names[f]...))
		}
	}
	return Answer{Findings: findings, Note: count(len(secrets), "token Secret", "token Secrets")}, nil
}

// judge finds the worst flaw. Young Secrets and those on their way out have none.
func judge(secret tokenSecret, accounts map[cache.ObjectName]types.UID, wanted wantedRootCA, now time.Time, grace time.Duration) flaw {
	if secret.Terminating() || now.Sub(secret.CreationTimestamp.Time) <= grace {
		return none
	}
	if secret.AccountName == "" {
		return nameless
	}
	uid, exists := accounts[secret.Account()]
	if !exists || secret.AccountUID != "" && secret.AccountUID != uid {
		return orphan
	}
	empty := secret.Token == nil
	strange := secret.bundle != "" && wanted.least != "" && !wanted.fits(secret.bundle)
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
