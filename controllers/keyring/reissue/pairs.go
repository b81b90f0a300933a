// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
)

// pairs are the token Secrets of one account, with which of them replaces which.
type pairs struct {
	account    *corev1.ServiceAccount
	secrets    []*tokensecrets.TokenSecret
	successors map[tokensecrets.Predecessor]*tokensecrets.TokenSecret
}

// pairUp chooses one of several Secrets that name the same predecessor: first one in service, then
// a referenced one, then the oldest. Several exist after two leaders, or after a request whose
// answer was lost. Terminating Secrets and those for which spoiled, if not nil, returns true are
// left out. account may be nil.
func pairUp(account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret, spoiled func(*tokensecrets.TokenSecret) bool) pairs {
	p := pairs{account: account, secrets: secrets}
	for _, secret := range secrets {
		if secret.Predecessor == (tokensecrets.Predecessor{}) || secret.Terminating() || spoiled != nil && spoiled(secret) {
			continue
		}
		if p.successors == nil {
			p.successors = map[tokensecrets.Predecessor]*tokensecrets.TokenSecret{}
		}
		if other := p.successors[secret.Predecessor]; other == nil || p.countsBefore(secret, other) {
			p.successors[secret.Predecessor] = secret
		}
	}
	return p
}

// predecessorOf returns what the successor of the Secret is annotated with.
func predecessorOf(secret *tokensecrets.TokenSecret) tokensecrets.Predecessor {
	return tokensecrets.Predecessor{Name: secret.Name, UID: secret.UID}
}

func (p pairs) countsBefore(secret, other *tokensecrets.TokenSecret) bool {
	if p.account != nil {
		if a, b := secret.InService(p.account), other.InService(p.account); a != b {
			return a
		}
		if a, b := tokensecrets.References(p.account, secret.Name), tokensecrets.References(p.account, other.Name); a != b {
			return a
		}
	}
	return tokensecrets.OldestFirst(secret, other) < 0
}

// Replacements returns the Replacement among the Secrets of an account, for the legacy token cleaner.
func Replacements(account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret) tokensecrets.Replacement {
	return pairUp(account, secrets, nil).replacement
}

// successor returns the Secret that replaces this one now or later, nil if there is none.
func (p pairs) successor(secret *tokensecrets.TokenSecret) *tokensecrets.TokenSecret {
	successor := p.successors[predecessorOf(secret)]
	if successor == nil || !successor.Replaces(secret) {
		return nil
	}
	return successor
}

// replacement returns the successor if it is in service already. A Secret whose annotation forbids
// re-issue, or that a user made, has no replacement, even if another Secret claims that.
func (p pairs) replacement(secret *tokensecrets.TokenSecret) *tokensecrets.TokenSecret {
	successor := p.successor(secret)
	if successor == nil || forbiddenByMode(secret) != "" || !successor.InService(p.account) {
		return nil
	}
	return successor
}

// predecessor returns the Secret that this one replaces, nil if it is gone or there is none.
func (p pairs) predecessor(secret *tokensecrets.TokenSecret) *tokensecrets.TokenSecret {
	if secret.Predecessor == (tokensecrets.Predecessor{}) {
		return nil
	}
	i := slices.IndexFunc(p.secrets, secret.Replaces)
	if i < 0 {
		return nil
	}
	return p.secrets[i]
}

// replaceable returns the predecessor if it is neither terminating nor marked invalid.
func (p pairs) replaceable(secret *tokensecrets.TokenSecret) *tokensecrets.TokenSecret {
	predecessor := p.predecessor(secret)
	if predecessor == nil || predecessor.Terminating() || predecessor.InvalidSince() {
		return nil
	}
	return predecessor
}
