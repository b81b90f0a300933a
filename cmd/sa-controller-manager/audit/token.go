// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/cmd/sa-controller-manager/keyview"
	"sa-controller-manager/controllers/view"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// State is that of the key that signed a token, or why there is none to tell.
type State string

// The states of keys, and three of our own.
const (
	StateActive    = State(keyview.Active)
	StateNext      = State(keyview.Next)
	StateRetired   = State(keyview.Retired)
	StateKnown     = State(keyview.Known)
	StatePublished = State(keyview.Published)
	StateUnknown   = State(keyview.Unknown)
	// StateUntold: no keys are known at all.
	StateUntold State = "untold"
	// StateMalformed: it is no token.
	StateMalformed State = "malformed"
	// StateEmpty: nobody has filled the Secret.
	StateEmpty State = "empty"
)

// States are all of them.
func States() []string {
	var names []string
	for _, state := range keyview.States() {
		names = append(names, string(state))
	}
	return append(names, string(StateUntold), string(StateMalformed), string(StateEmpty))
}

// token is what is kept of a token Secret: nothing of the token itself.
type token struct {
	view    *view.TokenSecret
	keyID   string
	state   State
	problem string
}

// Keys are what tokens are verified with. The nil ones tell nothing.
type Keys struct {
	keys   []keyview.Key
	public []signing.PublicKey
}

// NewKeys takes keys with their states.
func NewKeys(keys []keyview.Key) *Keys {
	k := &Keys{keys: keys}
	for _, key := range keys {
		k.public = append(k.public, key.PublicKey)
	}
	return k
}

// observe reduces a Secret.
func (k *Keys) observe(secret *corev1.Secret) token {
	seen := token{view: view.ObserveTokenSecret(secret)}
	if seen.view.Token == nil {
		seen.state = StateEmpty
		return seen
	}
	seen.problem, seen.keyID = seen.view.Finding, seen.view.Token.KeyID()
	if k == nil {
		seen.state = StateUntold
		return seen
	}
	index, err := tokens.SignedWith(string(secret.Data[corev1.ServiceAccountTokenKey]), k.public)
	switch {
	case err == nil:
		seen.state = State(k.keys[index].State)
	case errors.Is(err, tokens.ErrMalformed):
		seen.state = StateMalformed
	case errors.Is(err, tokens.ErrBadSignature) && seen.keyID != "":
		seen.state, seen.problem = k.named(seen.keyID), "data.token has a wrong signature: the key that it names has not made it"
	default:
		seen.state = StateUnknown
	}
	return seen
}

// named is the state of a key that is there.
func (k *Keys) named(id string) State {
	for _, key := range k.keys {
		if key.ID == id {
			return State(key.State)
		}
	}
	return StateUnknown
}
