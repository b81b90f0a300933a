// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"time"

	"sa-controller-manager/controllers/tokensecrets"
)

// abandoned is the age up to which an unreferenced new Secret counts as the rest of an interrupted
// re-issue. If it is older, a user has removed the reference on purpose, and the Secret stays.
const abandoned = time.Hour

// action is the kind of a step.
type action string

const (
	// create creates the Secret that replaces step.Secret.
	create action = "create"
	// reference puts step.Successor at the head of the account's list.
	reference action = "reference"
	// discard deletes step.Secret, a new Secret that replaces nothing.
	discard action = "discard"
	// warn records an Event about step.Secret.
	warn action = "warn"
)

// step is one thing to do for an account.
type step struct {
	action action
	Candidate
}

// plan returns the steps to do now. The objects show what has been done, so the next leader continues
// the plan of a killed process.
func (o observed) plan(auto bool, now time.Time) []step {
	var steps []step
	for _, candidate := range o.candidates() {
		if act, ok := actionFor(candidate.Progress); ok {
			steps = append(steps, step{act, candidate})
		}
	}
	if o.account == nil || o.account.DeletionTimestamp != nil {
		return steps
	}
	for _, secret := range o.secrets {
		if o.isLeftover(secret, auto, now) {
			steps = append(steps, step{discard, Candidate{Secret: secret}})
		}
	}
	return steps
}

func actionFor(progress Progress) (action, bool) {
	switch progress {
	case Progress{State: Due}:
		return create, true
	case Progress{State: Switching}:
		return reference, true
	case blocked(UnknownMode), blocked(FilledElsewhere):
		return warn, true
	default:
		return "", false
	}
}

// isLeftover reports whether the Secret was created to replace another one and is useless: it is
// superfluous, or its predecessor was deleted before anything referenced it. With auto the token
// controller adopts the latter.
func (o observed) isLeftover(secret *tokensecrets.TokenSecret, auto bool, now time.Time) bool {
	if !o.isUnused(secret) {
		return false
	}
	if o.replaceable(secret) != nil {
		return o.isSuperfluous(secret)
	}
	return !auto && now.Sub(secret.CreationTimestamp.Time) < abandoned
}

// isSuperfluous reports whether the Secret was created to replace an existing one that needs no
// replacement, because it has the active key again after a rollback, or because another Secret
// replaces it.
func (o observed) isSuperfluous(secret *tokensecrets.TokenSecret) bool {
	predecessor := o.replaceable(secret)
	if predecessor == nil || !o.isUnused(secret) {
		return false
	}
	if predecessor.Token != nil && predecessor.Token.KeyID() == o.ring.ActiveID() {
		return true
	}
	successor := o.successor(predecessor)
	return successor == nil || successor.UID != secret.UID
}

// isUnused reports whether this controller created the Secret as a successor, nothing references
// it and it was never used. managedFields prove who created it: a user's copy has the same annotation.
func (o observed) isUnused(secret *tokensecrets.TokenSecret) bool {
	_, used := secret.Labels[tokensecrets.LastUsedLabel]
	return secret.Predecessor != (tokensecrets.Predecessor{}) && !used &&
		secret.CreatedByController &&
		o.account != nil && secret.Serves(o.account) && !tokensecrets.References(o.account, secret.Name)
}
