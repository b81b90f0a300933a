// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"fmt"
	"time"

	"sa-controller-manager/signing"
)

// Activate makes the next key sign once it has been published for long enough, or at once if force is true. Whether the
// apiserver accepts its tokens must have been asked before.
func Activate(state State, now time.Time, policy Policy, force bool) (State, error) {
	switch state.Phase() {
	case Published:
	case Activated:
		return State{}, &Refusal{
			Reason: fmt.Sprintf("key %s signs already", state.Rotation.To), Remedy: "complete the rotation or roll it back", Done: true,
		}
	case Completed:
		// Somebody may have forgotten to start the next one.
		return State{}, refuse(completedText(state), "nothing is to be done; start another one to rotate again")
	default:
		return State{}, refuse("no rotation is in progress", "start one")
	}
	if wait := state.Rotation.ActivateNotBefore; now.Before(wait) && !force {
		return State{}, &Refusal{
			Reason: fmt.Sprintf("key %s was published at %s, and copies of the key set may be older than that", state.Rotation.To, clockTime(state.Rotation.StartedAt)),
			Remedy: "wait until " + clockTime(wait),
			Until:  wait,
			Breaks: "whoever verifies tokens with a copy of the key set from before the rotation started refuses every new token until the copy is renewed",
		}
	}
	now = stamp(now)
	next := state.next()
	activate(next, state.Rotation.To, now)
	retire(next, state.Rotation.From, now, policy)
	next.Rotation.Phase, next.Rotation.ActivatedAt = Activated, now
	return next, next.Validate()
}

// Complete ends a rotation whose new key signs. The time from which the former key counts as retired begins anew: from here on
// every process is taken to follow the ring.
func Complete(state State, now time.Time, policy Policy) (State, error) {
	switch state.Phase() {
	case Activated:
	case Published:
		return State{}, refuse(fmt.Sprintf("key %s does not sign yet", state.Rotation.To), "activate it first")
	case Completed:
		return State{}, &Refusal{Reason: completedText(state), Remedy: "nothing is to be done", Done: true}
	default:
		return State{}, refuse("no rotation is in progress", "start one")
	}
	now = stamp(now)
	next := state.next()
	retire(next, state.Rotation.From, now, policy)
	next.Rotation.Phase, next.Rotation.EndedAt = Completed, now
	return next, next.Validate()
}

func completedText(state State) string {
	return fmt.Sprintf("the rotation to key %s was completed at %s", state.Rotation.To, clockTime(state.Rotation.EndedAt))
}

// activate changes a state that is not out yet; so does retire.
func activate(s State, id string, now time.Time) {
	key := &s.Keys[s.index(id)]
	key.Role, key.ActivatedAt = signing.Active, now
	key.RetiredAt, key.HoldUntil = time.Time{}, time.Time{}
}

// retire never moves the time back, nor before the one from which the key signed: a clock that
// was set back since does not unsign what was signed by then.
func retire(s State, id string, now time.Time, policy Policy) {
	key := &s.Keys[s.index(id)]
	for _, signed := range []time.Time{key.ActivatedAt, key.RetiredAt} {
		if now.Before(signed) {
			now = signed
		}
	}
	key.Role, key.RetiredAt = signing.Retired, now
	key.HoldUntil = stamp(now.Add(policy.HoldDown))
}
