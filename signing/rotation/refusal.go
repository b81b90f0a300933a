// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"errors"
	"fmt"
	"time"
)

// Refusal is a transition that was not made. The state is as it was.
type Refusal struct { //nolint:errname // it is an answer to a person rather than a failure
	// Reason is why.
	Reason string
	// Remedy is what to do instead.
	Remedy string
	// Until is when the same transition will be allowed if nothing else changes, zero if time alone does not help.
	Until time.Time
	// Breaks is what goes wrong if the transition is forced, "" if it cannot be forced.
	Breaks string
	// Done says that what was asked for is so already: who was interrupted and asks again may go on.
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
