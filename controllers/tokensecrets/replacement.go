// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Pairs are the token Secrets that name one account, by which replaces which.
type Pairs struct {
	account    *corev1.ServiceAccount
	secrets    []*TokenSecret
	successors map[Predecessor]*TokenSecret
}

// PairUp finds, of several Secrets that say they replace the same one, the one that counts: one
// in service first, then a referenced one, then the oldest. Several are the work of two leaders,
// or of a request whose answer was lost. Those that are being deleted and those for which
// spoiled, if it is not nil, is true do not count. account may be nil.
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

// Successor is what replaces the Secret or is going to, nil if nothing does.
func (p Pairs) Successor(secret *TokenSecret) *TokenSecret {
	successor := p.successors[Predecessor{Name: secret.Name, UID: secret.UID}]
	if successor == nil || !successor.Replaces(secret) {
		return nil
	}
	return successor
}

// Replacement is the successor once it has taken the place of the Secret: it is in service. One
// whose annotation forbids that, and one that a user made, is not replaced whatever others say.
func (p Pairs) Replacement(secret *TokenSecret) *TokenSecret {
	successor := p.Successor(secret)
	if successor == nil || secret.ReissueMode() != ReissueSideBySide || !successor.InService(p.account) {
		return nil
	}
	return successor
}

// Predecessor is what the Secret replaces, nil if that is gone or there is none.
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

// Replaceable is the Predecessor if it is not about to go either.
func (p Pairs) Replaceable(secret *TokenSecret) *TokenSecret {
	predecessor := p.Predecessor(secret)
	if predecessor == nil || predecessor.Terminating() || predecessor.InvalidSince() {
		return nil
	}
	return predecessor
}

// Own is the token Secret that --token-secrets=auto counts as the account's own, nil if there is
// none, whereupon one is made. The legacy token cleaner leaves this one alone: otherwise it and
// auto would delete and make Secrets without end. One that was re-issued gives way to its
// successor, or the old one would stay and the new one go.
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

// preferred puts a Secret that bears our marker first and an older one before a younger one, so
// that the answer stays the same for as long as the Secret lives.
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
