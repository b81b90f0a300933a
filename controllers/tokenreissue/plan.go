// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
)

// abandoned bounds the time in which a new Secret is taken for the remains of a
// re-issue that was cut short. Somebody who takes a reference away later on has a
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
	// complain tells what is wrong with step.Secret.
	complain action = "complain"
)

// step is one thing to do for an account.
type step struct {
	action action
	Holder
}

// plan says what is to be done now for an account and the token Secrets that name it.
// What has been done shows in these objects, so the plan of a process that was killed
// is continued by whoever plans next.
func plan(account *corev1.ServiceAccount, secrets []*tokensecrets.TokenSecret, ring Ring, auto bool, now time.Time) []step {
	var steps []step
	for _, holder := range holdersOf(account, secrets, ring) {
		if act, ok := actionFor(holder.Holding); ok {
			steps = append(steps, step{act, holder})
		}
	}
	if account == nil || account.DeletionTimestamp != nil {
		return steps
	}
	pairs := pairsIn(account, secrets, ring)
	for _, secret := range secrets {
		if isRemains(account, secret, pairs, ring, auto, now) {
			steps = append(steps, step{discard, Holder{Secret: secret}})
		}
	}
	return steps
}

func actionFor(holding Holding) (action, bool) {
	switch holding {
	case Due:
		return create, true
	case Switching:
		return reference, true
	case InPlace:
		return overwrite, true
	case UnknownMode, Immutable, FilledElsewhere:
		return complain, true
	default:
		return "", false
	}
}

// isRemains tells whether the Secret was made to replace another one and is good for
// nothing: it is superfluous, or its predecessor went before anybody was led to it. With
// auto the token controller sees to the latter.
func isRemains(account *corev1.ServiceAccount, secret *tokensecrets.TokenSecret, pairs pairs, ring Ring, auto bool, now time.Time) bool {
	if !isUntouched(account, secret) {
		return false
	}
	if pairs.replaceable(secret) != nil {
		return isSuperfluous(account, secret, pairs, ring)
	}
	return !auto && now.Sub(secret.CreationTimestamp.Time) < abandoned
}

// isSuperfluous tells whether the Secret was made to replace one that is there and does
// not: that one bears the active key again, after a rollback, or another Secret replaces
// it or will.
func isSuperfluous(account *corev1.ServiceAccount, secret *tokensecrets.TokenSecret, pairs pairs, ring Ring) bool {
	predecessor := pairs.replaceable(secret)
	if predecessor == nil || !isUntouched(account, secret) {
		return false
	}
	if predecessor.Token != nil && predecessor.Token.KeyID() == ring.ActiveID() {
		return true
	}
	successor := pairs.successor(predecessor)
	return successor == nil || successor.UID != secret.UID
}

// replaceable is what the Secret replaces, nil if that is gone or about to go.
func (p pairs) replaceable(secret *tokensecrets.TokenSecret) *tokensecrets.TokenSecret {
	predecessor := p.predecessor(secret)
	if predecessor == nil || predecessor.Terminating() || predecessor.InvalidSince() {
		return nil
	}
	return predecessor
}

// isUntouched: a Secret of ours that replaces another one, which nothing references and
// nobody has used.
func isUntouched(account *corev1.ServiceAccount, secret *tokensecrets.TokenSecret) bool {
	_, used := secret.Labels[tokensecrets.LastUsedLabel]
	return secret.Predecessor != (tokensecrets.Predecessor{}) && secret.AutoCreated() && account != nil && secret.AccountUID == account.UID &&
		!used && !secret.Terminating() && !secret.InvalidSince() && !tokensecrets.References(account, secret.Name)
}
