// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import "time"

// Pause keeps rotation by policy from taking steps until Resume. It refuses nothing else.
func Pause(state State, now time.Time) (State, error) {
	if !state.PausedAt.IsZero() {
		return State{}, &Refusal{Reason: "rotation by policy is paused since " + clockTime(state.PausedAt), Remedy: "nothing to do", Done: true}
	}
	next := state.next()
	next.PausedAt = stamp(now)
	return next.sealed()
}

// Resume ends a Pause.
func Resume(state State) (State, error) {
	if state.PausedAt.IsZero() {
		return State{}, &Refusal{Reason: "rotation by policy is not paused", Remedy: "nothing to do", Done: true}
	}
	next := state.next()
	next.PausedAt = time.Time{}
	return next.sealed()
}
