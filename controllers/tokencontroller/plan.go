// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/signing"
)

// Reasons of the Events about a token Secret.
const (
	reasonOrphan       = "OrphanedTokenSecretDeleted"
	reasonUnused       = "UnusedTokenSecretDeleted"
	reasonImmutable    = "ImmutableTokenSecret"
	reasonMismatch     = "TokenSecretMismatch"
	reasonUnknownKey   = "UnknownSigningKey"
	reasonInvalidSince = "TokenMarkedInvalid"
	reasonBadAccount   = "InvalidServiceAccountName"
	reasonRefused      = "TokenSecretRefused"
	reasonUndone       = "TokenSecretsDeletedByOthers"
)

// shownKeyID is how many characters of an unknown key ID an Event quotes; ours have 43.
const shownKeyID = 64

// secretPlan has the parts of a token Secret to write, and a warning about what no write can fix.
type secretPlan struct {
	token, namespace, uid bool
	// ca is the root CA to write. It may have been replaced by the time of the write.
	ca      *rootca.Bundle
	warning warning
}

type warning struct{ reason, note string }

func (p secretPlan) writes() bool { return p.token || p.ca != nil || p.namespace || p.uid }

// onlyReplacesCA reports whether the write can wait: the Secret is complete, but for a root CA
// that has changed.
func (p secretPlan) onlyReplacesCA(secret *tokensecrets.TokenSecret) bool {
	return p.ca != nil && secret.HasCA && !p.token && !p.namespace && !p.uid
}

// planSecret decides for a Secret whose annotations fit account. It writes only what is empty, ca.crt,
// which follows the root CA (upstream: secretUpdateNeeded in
// pkg/controller/serviceaccount/tokens_controller.go), and a token in place of one whose key was revoked,
// which nothing accepts.
func planSecret(secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount, ca *rootca.Bundle, keys *signing.KeySet) secretPlan {
	if secret.Terminating() || account.DeletionTimestamp != nil {
		return secretPlan{}
	}
	plan := secretPlan{
		token:     secret.Token == nil || revoked(secret, account, keys),
		namespace: !secret.HasNamespace,
		uid:       secret.AccountUID == "",
		warning:   contradiction(secret, account, keys),
	}
	if ca.NeedsUpdate(secret.HasCA, secret.CAHash) {
		plan.ca = ca
	}
	if secret.Immutable && plan.writes() {
		return secretPlan{warning: warning{reasonImmutable,
			"the Secret is immutable, so it cannot be filled or kept current: delete it and create it without immutable: true"}}
	}
	if plan.token && secret.InvalidSince() {
		plan.token = false
		plan.warning = warning{reasonInvalidSince,
			"no token is issued while the label " + tokensecrets.InvalidSinceLabel + " says that it is invalid: remove the label first"}
	}
	return plan
}

// revoked reports whether the token would be good, had its key not been revoked.
func revoked(secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount, keys *signing.KeySet) bool {
	token := secret.Token
	return token != nil && secret.Finding == "" && token.AccountUID == account.UID && keys.Revoked(token.KeyID()) && !secret.InvalidSince()
}

// contradiction returns a warning if the token does not fit the Secret, the account or the keys. The
// token stays: a client may be using it.
func contradiction(secret *tokensecrets.TokenSecret, account *corev1.ServiceAccount, keys *signing.KeySet) warning {
	token := secret.Token
	switch {
	case secret.Finding != "":
		return warning{reasonMismatch, secret.Finding}
	case token == nil:
		return warning{}
	case token.AccountUID != account.UID:
		return warning{reasonMismatch, fmt.Sprintf(
			"data.token is for an earlier ServiceAccount %q: empty data.token to have it issued again", account.Name)}
	case token.KeyID() == "":
		return warning{} // issued before key IDs existed: its key is unknown
	}
	if _, known := keys.Lookup(token.KeyID()); !known && !keys.Revoked(token.KeyID()) {
		return warning{reasonUnknownKey, fmt.Sprintf(
			"data.token was signed with key %.*q, which is neither the signing key nor one that only verifies",
			shownKeyID, token.KeyID())}
	}
	return warning{}
}

// mayWait reports whether an orphan may have been applied before its account: a Secret that never
// belonged to an account has neither a UID nor a token.
func mayWait(secret *tokensecrets.TokenSecret) bool {
	return secret.AccountUID == "" && secret.Token == nil
}

// getsOwn reports whether the account must have its token Secret: without Auto none has, and with it none in the
// excluded namespaces.
func (c *Controller) getsOwn(account *corev1.ServiceAccount) bool {
	return c.Auto && !c.AutoExcluded.Has(account.Namespace) && account.DeletionTimestamp == nil
}

// planAccount decides for an account that gets a token Secret, from its reference list and the token Secrets that name it:
// satisfied if it references a live one, or else which Secret to reference, nil for a new one. A user may have made
// thousands of both.
//
// An unreferenced Secret is adopted only if it bears our marker: a crash between creating and
// referencing has left it behind, or a user has removed its reference. A Secret that is not needed
// stays, because a client may be using it.
func planAccount(account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret) (satisfied bool, adopt *tokensecrets.TokenSecret) {
	if tokensecrets.Own(account, secrets, tokensecrets.NotReplaced) != nil {
		return true, nil
	}
	referenced, working := tokensecrets.ReferencedBy(account), sets.Set[tokensecrets.Predecessor]{}
	for _, secret := range secrets {
		if !secret.Terminating() && !secret.InvalidSince() {
			working.Insert(tokensecrets.Predecessor{Name: secret.Name, UID: secret.UID})
		}
	}
	for _, secret := range secrets {
		// The successor of a Secret that still works is referenced by who created it, once it is filled.
		if secret.Serves(account) && secret.AutoCreated() && !referenced.Has(secret.Name) && !working.Has(secret.Predecessor) &&
			(adopt == nil || tokensecrets.OldestFirst(secret, adopt) < 0) {
			adopt = secret
		}
	}
	return false, adopt
}
