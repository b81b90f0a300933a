// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
)

// Own is the token Secret that Auto counts as the account's own, of the Secrets
// that name the account; nil if there is none, whereupon Auto makes one. The
// legacy token cleaner leaves this one alone: otherwise it and Auto would delete
// and make Secrets for ever. One that was re-issued gives way to its successor, or
// the old one would stay for ever and the new one go.
func Own(account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret) *tokensecrets.TokenSecret {
	replaced := replacedBy(account, secrets)
	var own *tokensecrets.TokenSecret
	for _, secret := range secrets {
		if !inService(account, secret) || replaced.successor(secret) != nil {
			continue
		}
		if own == nil || preferred(secret, own) {
			own = secret
		}
	}
	return own
}

// Successor is the Secret of the account that has taken the place of secret, nil if
// there is none: a live, valid, referenced one that says that it replaces secret. One
// whose annotation forbids that, and one that a user made, is not replaced whatever
// others say.
func Successor(account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret, secret *tokensecrets.TokenSecret) *tokensecrets.TokenSecret {
	return replacedBy(account, secrets).successor(secret)
}

// replacements are the Secrets in service that replace another one, by that one.
type replacements map[tokensecrets.Predecessor]*tokensecrets.TokenSecret

func replacedBy(account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret) replacements {
	var replaced replacements
	for _, secret := range secrets {
		if secret.Predecessor == (tokensecrets.Predecessor{}) || !inService(account, secret) {
			continue
		}
		if replaced == nil {
			replaced = replacements{}
		}
		replaced[secret.Predecessor] = secret
	}
	return replaced
}

func (r replacements) successor(secret *tokensecrets.TokenSecret) *tokensecrets.TokenSecret {
	successor := r[tokensecrets.Predecessor{Name: secret.Name, UID: secret.UID}]
	if successor == nil || secret.ReissueMode() != tokensecrets.ReissueSideBySide || !successor.Replaces(secret) {
		return nil
	}
	return successor
}

// inService tells whether the Secret can give the account a token and is referenced.
func inService(account *corev1.ServiceAccount, secret *tokensecrets.TokenSecret) bool {
	return serves(account, secret) && tokensecrets.References(account, secret.Name)
}

// serves tells whether the Secret can give the account a token.
func serves(account *corev1.ServiceAccount, secret *tokensecrets.TokenSecret) bool {
	return !secret.Terminating() && !secret.InvalidSince() && secret.AccountUID == account.UID
}

// preferred puts a Secret that bears our marker first and an older one before a
// younger one, so that the answer stays the same for as long as the Secret lives.
func preferred(a, b *tokensecrets.TokenSecret) bool {
	if a.AutoCreated() != b.AutoCreated() {
		return a.AutoCreated()
	}
	return tokensecrets.OldestFirst(a, b) < 0
}
