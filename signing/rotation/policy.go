// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"errors"
	"fmt"
	"time"
)

// Policy is how long things wait. The zero Policy waits for nothing; DefaultPolicy is right for a
// cluster.
type Policy struct {
	// CacheAge is how old a copy of the key set may be that somebody verifies tokens with.
	// kube-apiserver tells readers of its JWKS to keep it for an hour.
	CacheAge time.Duration
	// TokenLifetime is the longest life of a bound token. With
	// --service-account-extend-token-expiration, which is kube-apiserver's default, that is a year.
	TokenLifetime time.Duration
	// HoldDown is how long a retired key stays after the last change that concerns it, whoever may
	// need it: the time to notice a mistake and to roll back.
	HoldDown time.Duration
}

// DefaultPolicy is what the commands begin with.
func DefaultPolicy() Policy {
	return Policy{CacheAge: time.Hour, TokenLifetime: 365 * 24 * time.Hour, HoldDown: 24 * time.Hour}
}

// PrunableAt is the earliest time at which a retired key may be pruned: no bound token lives and
// the hold-down has ended. Whether a token Secret bears its key ID is another question.
func (p Policy) PrunableAt(key Key) time.Time {
	at := key.RetiredAt.Add(p.TokenLifetime)
	if key.HoldUntil.After(at) {
		return key.HoldUntil
	}
	return at
}

// Usage is what is known about the use of a key.
type Usage struct {
	// Secrets is the number of token Secrets that bear the key ID, or a negative number if nobody
	// counted.
	Secrets int
	// SignsElsewhere says that kube-apiserver still signs bound tokens with the key.
	SignsElsewhere bool
	// LastSigned is when a process was found to have signed with the key last, zero if nobody knows.
	// It counts if it is later than the time at which the key was retired.
	LastSigned time.Time
}

// Refusal is a transition that was not made. The state is as it was.
type Refusal struct { //nolint:errname // it is an answer to a person rather than a failure
	// Reason is why.
	Reason string
	// Remedy is what to do instead.
	Remedy string
	// Until is when the same transition will be allowed if nothing else changes, zero if time alone
	// does not help.
	Until time.Time
	// Breaks is what goes wrong if the transition is forced, "" if it cannot be forced.
	Breaks string
	// Done says that what was asked for is so already: who was interrupted and asks again may go
	// on.
	Done bool
}

// Error is the reason and the remedy.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Remedy }

func refuse(reason, remedy string) error { return &Refusal{Reason: reason, Remedy: remedy} }

// IsDone tells a refusal of what is so already.
func IsDone(err error) bool {
	refusal, ok := errors.AsType[*Refusal](err)
	return ok && refusal.Done
}

// clockTime is a time in the text of a refusal.
func clockTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func keyText(key Key) string { return fmt.Sprintf("key %s (%s)", key.ID, key.Algorithm) }
