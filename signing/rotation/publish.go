// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"fmt"
	"time"

	"sa-controller-manager/signing"
)

// New is the state of a ring that is made now: active signs, and retired keys, such as those that kube-apiserver verifies
// with, verify.
func New(active Key, retired []Key, now time.Time, policy Policy) (State, error) {
	now = stamp(now)
	state := State{SchemaVersion: SchemaVersion, Generation: 1}
	active.Role, active.PublishedAt, active.ActivatedAt = signing.Active, now, now
	state.Keys = append(state.Keys, active)
	for _, key := range retired {
		// Who knows what signed with it until this moment.
		key.Role, key.PublishedAt, key.RetiredAt = signing.Retired, now, now
		key.HoldUntil = stamp(now.Add(policy.HoldDown))
		state.Keys = append(state.Keys, key)
	}
	return state, state.Validate()
}

// Publish begins a rotation to a key that is not in the ring.
func Publish(state State, key Key, now time.Time, policy Policy) (State, error) {
	if state.InProgress() {
		return State{}, refuse(fmt.Sprintf("a rotation to key %s is in progress", state.Rotation.To),
			"complete it or roll it back before the next one")
	}
	if known, ok := state.Key(key.ID); ok {
		return State{}, refuse(fmt.Sprintf("%s is in the ring already, as %s", keyText(known), known.Role),
			"rotate to a new key")
	}
	now = stamp(now)
	next := state.next()
	key.Role = signing.Next
	key.PublishedAt = now
	key.ActivatedAt, key.RetiredAt, key.HoldUntil = time.Time{}, time.Time{}, time.Time{}
	next.Keys = append(next.Keys, key)
	next.forget(key.ID)
	next.Rotation = &Rotation{
		Phase: Published, From: state.Active().ID, To: key.ID,
		StartedAt: now, ActivateNotBefore: stamp(now.Add(policy.CacheAge)),
	}
	return next, next.Validate()
}
