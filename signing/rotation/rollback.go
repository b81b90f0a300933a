// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"fmt"
	"slices"
	"time"
)

// Rollback has the former key of the latest rotation sign. A new key that has never signed leaves the ring; one
// that has signed is retired, because its tokens live on.
func Rollback(state State, now time.Time, policy Policy) (State, error) {
	switch state.Phase() {
	case Published:
		return withdraw(state, stamp(now))
	case Activated, Completed:
		return takeBack(state, stamp(now), policy)
	case RolledBack:
		return State{}, refuse(fmt.Sprintf("the rotation to key %s was rolled back at %s", state.Rotation.To, clockTime(state.Rotation.EndedAt)),
			"nothing is to be done; start another rotation when the cause is mended")
	default:
		return State{}, refuse("the ring was never rotated", "there is nothing to go back to")
	}
}

func withdraw(state State, now time.Time) (State, error) {
	next := state.next()
	i := next.index(state.Rotation.To)
	next.Withdrawn = append(next.Withdrawn, state.Rotation.To)
	next.Keys = slices.Delete(next.Keys, i, i+1)
	next.Rotation.Phase, next.Rotation.EndedAt = RolledBack, now
	return next, next.Validate()
}

func takeBack(state State, now time.Time, policy Policy) (State, error) {
	former, ok := state.Key(state.Rotation.From)
	if !ok {
		return State{}, refuse(fmt.Sprintf("key %s, which signed before, has been pruned", state.Rotation.From), "start a rotation to a new key")
	}
	next := state.next()
	activate(next, former.ID, now)
	retire(next, state.Rotation.To, now, policy)
	next.Rotation.Phase, next.Rotation.EndedAt = RolledBack, now
	return next, next.Validate()
}
