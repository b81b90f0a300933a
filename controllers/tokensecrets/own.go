// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// OldestFirst sorts token Secrets by creation time, which has whole seconds, and then by name, so
// that a choice among several is the same each time.
func OldestFirst(a, b *TokenSecret) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// Replacement returns the Secret that a re-issue has put in the place of another one of the same
// account, nil if none has.
type Replacement func(*TokenSecret) *TokenSecret

// NotReplaced is the Replacement without re-issue.
func NotReplaced(*TokenSecret) *TokenSecret { return nil }

// Own returns the token Secret that --token-secrets=auto counts as the account's own, nil if one has
// to be created. The legacy token cleaner leaves it alone: otherwise the cleaner and auto would delete
// and create Secrets without end. After a re-issue it is the Secret that replacement returns, or the
// old one would stay and the new one be deleted.
func Own(account *corev1.ServiceAccount, secrets []*TokenSecret, replacement Replacement) *TokenSecret {
	var own *TokenSecret
	referenced := ReferencedBy(account)
	for _, secret := range secrets {
		if !secret.Serves(account) || !referenced.Has(secret.Name) || replacement(secret) != nil {
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
