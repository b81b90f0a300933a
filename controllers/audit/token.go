// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// The states of a token beyond those of the key that signed it.
const (
	// StateUnchecked: no keys are known at all.
	StateUnchecked signing.Role = "unchecked"
	// StateMalformed: it is no token.
	StateMalformed signing.Role = "malformed"
	// StateEmpty: the Secret was not filled.
	StateEmpty signing.Role = "empty"
)

// States are all of them.
func States() []string {
	var names []string
	for _, state := range append(tokens.KeyStates(), StateUnchecked, StateMalformed, StateEmpty) {
		names = append(names, string(state))
	}
	return names
}

// token is what is kept of a token Secret: nothing of the token itself.
type token struct {
	view *tokensecrets.TokenSecret
	// account and uid are those of the ServiceAccount that the token opens things for. Without a
	// token that could open anything they are what the annotations say, "" if these say nothing.
	account string
	uid     types.UID

	keyID   string
	state   signing.Role
	problem string
}

// Keys are what tokens are verified with. Of nil ones nothing is known.
type Keys []signing.Key

// observe reduces a Secret.
func (k Keys) observe(secret *corev1.Secret) token {
	t := token{view: tokensecrets.Observe(secret)}
	t.account, t.uid = t.view.AccountName, t.view.AccountUID
	if t.view.Token == nil {
		t.state = StateEmpty
		return t
	}
	t.problem, t.keyID = t.view.Finding, t.view.Token.KeyID()
	data := tokens.Canonical(string(secret.Data[corev1.ServiceAccountTokenKey])) // or an edit would have it called dead
	var forged bool
	if t.state, forged = k.verify(data, t.keyID); forged {
		t.problem = "data.token has a wrong signature: the key that its header names has not made it"
		return t
	}
	t.readOwner(data)
	return t
}

// verify returns the state of the key that signed a token, and whether it is known that the key it names
// has not.
func (k Keys) verify(data, keyID string) (state signing.Role, forged bool) {
	if k == nil {
		return StateUnchecked, false
	}
	key, err := tokens.KeyOf(data, k)
	switch {
	case err == nil:
		return key.Role, false
	case errors.Is(err, tokens.ErrMalformed):
		return StateMalformed, false
	case errors.Is(err, tokens.ErrBadSignature) && keyID != "":
		return k.named(keyID), true
	default:
		return tokens.Unknown, false
	}
}

// readOwner takes the account from the claims of a token for this very Secret, because
// kube-apiserver does so and reads no annotation (pkg/serviceaccount/legacy.go): who edits
// annotations must not be able to hide a token that it accepts. It may have keys that we do not
// know, so a token that cannot be verified counts as well.
func (t *token) readOwner(data string) {
	claims, err := tokens.Inspect(data)
	if err != nil || claims.AccountUID == "" || len(validation.IsDNS1123Subdomain(claims.AccountName)) > 0 {
		return
	}
	owner := tokens.Account{Namespace: t.view.Namespace, Name: claims.AccountName, UID: claims.AccountUID}
	if claims.Mismatch(owner, t.view.Name) == "" {
		t.account, t.uid = claims.AccountName, t.view.Token.AccountUID
	}
}

// named is the state of a key that is there.
func (k Keys) named(id string) signing.Role {
	for _, key := range k {
		if key.ID == id {
			return key.Role
		}
	}
	return tokens.Unknown
}
