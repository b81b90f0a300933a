// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/view"
)

// Own is the token Secret that Auto counts as the account's own, of the Secrets
// that name the account; nil if there is none, whereupon Auto makes one. The
// legacy token cleaner leaves this one alone: otherwise it and Auto would delete
// and make Secrets for ever.
func Own(account *corev1.ServiceAccount, secrets []*view.TokenSecret) *view.TokenSecret {
	var own *view.TokenSecret
	for _, secret := range secrets {
		if serves(account, secret) && view.References(account, secret.Name) && (own == nil || preferred(secret, own)) {
			own = secret
		}
	}
	return own
}

// serves tells whether the Secret can give the account a token.
func serves(account *corev1.ServiceAccount, secret *view.TokenSecret) bool {
	return !secret.Terminating() && !secret.InvalidSince() && secret.AccountUID == account.UID
}

// preferred puts a Secret that bears our marker first and an older one before a
// younger one, so that the answer stays the same for as long as the Secret lives.
func preferred(a, b *view.TokenSecret) bool {
	if a.AutoCreated() != b.AutoCreated() {
		return a.AutoCreated()
	}
	return oldestFirst(a, b) < 0
}
