// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"time"

	"sa-controller-manager/controllers/tokensecrets"
)

// abandoned bounds the time in which a new Secret is taken for the remains of a
// re-issue that was cut short. A user who takes a reference away later on has a
// reason, and the Secret stays.
const abandoned = time.Hour

// action is what a step does.
type action string

const (
	// create makes the Secret that is to replace step.Secret.
	create action = "create"
	// reference puts step.Successor at the head of the account's list.
	reference action = "reference"
	// overwrite writes a new token into step.Secret.
	overwrite action = "overwrite"
	// discard deletes step.Secret, which was made to replace another one and does not.
	discard action = "discard"
	// warn records what is wrong with step.Secret.
	warn action = "warn"
)

// step is one thing to do for an account.
type step struct {
	action action
	ReissueCandidate
}

// plan is what is to be done now. What has been done shows in the objects, so the plan of
// a process that was killed is continued by the next leader.
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
		if o.isRemains(secret, auto, now) {
			steps = append(steps, step{discard, ReissueCandidate{Secret: secret}})
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
	case Progress{State: InPlace}:
		return overwrite, true
	case blocked(UnknownMode), blocked(Immutable), blocked(FilledElsewhere):
		return warn, true
	default:
		return "", false
	}
}

// isRemains reports whether the Secret was made to replace another one and is good for
// nothing: it is superfluous, or its predecessor went before anybody was led to it. With
// auto the token controller sees to the latter.
func (o observed) isRemains(secret *tokensecrets.TokenSecret, auto bool, now time.Time) bool {
	if !o.isUntouched(secret) {
		return false
	}
	if o.pairs.Replaceable(secret) != nil {
		return o.isSuperfluous(secret)
	}
	return !auto && now.Sub(secret.CreationTimestamp.Time) < abandoned
}

// isSuperfluous reports whether the Secret was made to replace one that is there and does
// not: that one bears the active key again, after a rollback, or another Secret replaces
// it or will.
func (o observed) isSuperfluous(secret *tokensecrets.TokenSecret) bool {
	predecessor := o.pairs.Replaceable(secret)
	if predecessor == nil || !o.isUntouched(secret) {
		return false
	}
	if predecessor.Token != nil && predecessor.Token.KeyID() == o.ring.ActiveID() {
		return true
	}
	successor := o.pairs.Successor(predecessor)
	return successor == nil || successor.UID != secret.UID
}

// isUntouched: a Secret of ours that replaces another one, which nothing references and
// nobody has used. managedFields say that we made it: a copy has our label as well, and is its
// user's.
func (o observed) isUntouched(secret *tokensecrets.TokenSecret) bool {
	_, used := secret.Labels[tokensecrets.LastUsedLabel]
	return secret.Predecessor != (tokensecrets.Predecessor{}) && secret.AutoCreated() && !used &&
		secret.CreatedByController &&
		o.account != nil && secret.Serves(o.account) && !tokensecrets.References(o.account, secret.Name)
}
