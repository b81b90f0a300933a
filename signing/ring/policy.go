// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"errors"
	"fmt"
	"time"
)

// Policy has the waiting times of a rotation. The zero Policy waits for nothing.
type Policy struct {
	// CacheAge is the greatest age of a copy of the key set that a verifier uses. kube-apiserver
	// lets readers of its JWKS cache it for an hour.
	CacheAge time.Duration
	// TokenLifetime is the longest life of a bound token. With
	// --service-account-extend-token-expiration, which is kube-apiserver's default, that is a year.
	TokenLifetime time.Duration
}

// Usage is what is known about the use of a retired key.
type Usage struct {
	// Secrets is the number of token Secrets with the key ID.
	Secrets int
	// Signer names a host or kube-apiserver that still signs bound tokens with the key, "" if none does.
	Signer string
	// Since is when it was first seen that none does.
	Since time.Time
}

// Refusal is the error of a refused transition. The state is unchanged.
type Refusal struct { //nolint:errname // an answer to the user rather than a failure
	// Reason is why.
	Reason string
	// Remedy is what to do instead.
	Remedy string
	// Until is when the same transition will be allowed if nothing else changes, zero if time alone
	// does not help.
	Until time.Time
	// Later means that it may be allowed later, at a time that is not known.
	Later bool
	// Breaks is what goes wrong if the transition is forced, "" if it cannot be forced.
	Breaks string
	// Done means that the transition was made before, such as by an interrupted command.
	Done bool
}

// Error is the reason and the remedy.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Remedy }

func refuse(reason, remedy string) error { return &Refusal{Reason: reason, Remedy: remedy} }

// IsDone reports whether err refuses a transition that was made before.
func IsDone(err error) bool {
	refusal, ok := errors.AsType[*Refusal](err)
	return ok && refusal.Done
}

// clockTime formats a time for the text of a refusal.
func clockTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func keyText(key Key) string { return fmt.Sprintf("key %s (%s)", key.ID, key.Algorithm) }
