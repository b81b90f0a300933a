// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Pairs are the token Secrets of one account, with which of them replaces which.
type Pairs struct {
	account    *corev1.ServiceAccount
	secrets    []*TokenSecret
	successors map[Predecessor]*TokenSecret
}

// PairUp chooses one of several Secrets that name the same predecessor: first one in service, then
// a referenced one, then the oldest. Several exist after two leaders, or after a request whose
// answer was lost. Terminating Secrets and those for which spoiled, if not nil, returns true are
// left out. account may be nil.
func PairUp(account *corev1.ServiceAccount, secrets []*TokenSecret, spoiled func(*TokenSecret) bool) Pairs {
	p := Pairs{account: account, secrets: secrets}
	for _, secret := range secrets {
		if secret.Predecessor == (Predecessor{}) || secret.Terminating() || spoiled != nil && spoiled(secret) {
			continue
		}
		if p.successors == nil {
			p.successors = map[Predecessor]*TokenSecret{}
		}
		if other := p.successors[secret.Predecessor]; other == nil || p.countsBefore(secret, other) {
			p.successors[secret.Predecessor] = secret
		}
	}
	return p
}

func (p Pairs) countsBefore(secret, other *TokenSecret) bool {
	if p.account != nil {
		if a, b := secret.InService(p.account), other.InService(p.account); a != b {
			return a
		}
		if a, b := References(p.account, secret.Name), References(p.account, other.Name); a != b {
			return a
		}
	}
	return OldestFirst(secret, other) < 0
}

// Successor returns the Secret that replaces this one now or later, nil if there is none.
func (p Pairs) Successor(secret *TokenSecret) *TokenSecret {
	successor := p.successors[Predecessor{Name: secret.Name, UID: secret.UID}]
	if successor == nil || !successor.Replaces(secret) {
		return nil
	}
	return successor
}

// Replacement returns the successor if it is in service already. A Secret whose annotation forbids
// re-issue, or that a user made, has no replacement, whatever other Secrets say.
func (p Pairs) Replacement(secret *TokenSecret) *TokenSecret {
	successor := p.Successor(secret)
	if successor == nil || secret.ReissueMode() != ReissueSideBySide || !successor.InService(p.account) {
		return nil
	}
	return successor
}

// Predecessor returns the Secret that this one replaces, nil if it is gone or there is none.
func (p Pairs) Predecessor(secret *TokenSecret) *TokenSecret {
	if secret.Predecessor == (Predecessor{}) {
		return nil
	}
	i := slices.IndexFunc(p.secrets, secret.Replaces)
	if i < 0 {
		return nil
	}
	return p.secrets[i]
}

// Replaceable returns the Predecessor if it is neither terminating nor marked invalid.
func (p Pairs) Replaceable(secret *TokenSecret) *TokenSecret {
	predecessor := p.Predecessor(secret)
	if predecessor == nil || predecessor.Terminating() || predecessor.InvalidSince() {
		return nil
	}
	return predecessor
}

// Own returns the token Secret that --token-secrets=auto counts as the account's own, nil if one
// has to be created. The legacy token cleaner leaves it alone: otherwise the cleaner and auto would
// delete and create Secrets without end. After a re-issue it is the successor, or the old Secret
// would stay and the new one be deleted.
func (p Pairs) Own() *TokenSecret {
	var own *TokenSecret
	for _, secret := range p.secrets {
		if !secret.InService(p.account) || p.Replacement(secret) != nil {
			continue
		}
		if own == nil || preferred(secret, own) {
			own = secret
		}
	}
	return own
}

// preferred puts a Secret with our marker first and an older one before a younger one, so that the
// choice stays the same as long as the Secret exists.
func preferred(a, b *TokenSecret) bool {
	if a.AutoCreated() != b.AutoCreated() {
		return a.AutoCreated()
	}
	return OldestFirst(a, b) < 0
}

// InService reports whether the Secret can give the account a token and is referenced.
func (s *TokenSecret) InService(account *corev1.ServiceAccount) bool {
	return account != nil && s.Serves(account) && References(account, s.Name)
}

// Serves reports whether the Secret can give the account a token.
func (s *TokenSecret) Serves(account *corev1.ServiceAccount) bool {
	return !s.Terminating() && !s.InvalidSince() && s.AccountUID == account.UID
}
