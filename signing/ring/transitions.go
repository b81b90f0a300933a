// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"fmt"
	"slices"
	"time"

	"sa-controller-manager/signing"
)

// New returns the state of a new ring: active signs, and retired keys, such as those of
// kube-apiserver's key files, verify.
func New(active Key, retired []Key, now time.Time, policy Policy) (State, error) {
	now = stamp(now)
	state := State{SchemaVersion: SchemaVersion, Generation: 1}
	active.Role, active.PublishedAt, active.ActivatedAt = signing.Active, now, now
	state.Keys = append(state.Keys, active)
	for _, key := range retired {
		// Another program may have signed with it until now.
		key.Role, key.PublishedAt, key.RetiredAt = signing.Retired, now, now
		key.HoldUntil = stamp(now.Add(policy.HoldDown))
		state.Keys = append(state.Keys, key)
	}
	return state.sealed()
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
	if i := slices.IndexFunc(state.Keys,
		func(known Key) bool { return key.Signer != "" && known.Signer == key.Signer && !known.PublicOnly }); i >= 0 {
		return State{}, refuse(fmt.Sprintf("%s is the signer of %s, which is %s", key.Signer, keyText(state.Keys[i]), state.Keys[i].Role),
			"give the new key a name and a socket of its own")
	}
	if slices.Contains(state.Pruned, key.ID) || slices.Contains(state.Withdrawn, key.ID) {
		return State{}, refuse(fmt.Sprintf("%s was taken out of the ring before, and copies of it remember that", keyText(key)),
			"rotate to a new key")
	}
	now = stamp(now)
	next := state.next()
	key.Role = signing.Next
	key.PublishedAt = now
	key.ActivatedAt, key.RetiredAt, key.HoldUntil = time.Time{}, time.Time{}, time.Time{}
	next.Keys = append(next.Keys, key)
	next.Rotation = &Rotation{
		Phase: Published, From: state.Active().ID, To: key.ID,
		StartedAt: now, ActivateNotBefore: stamp(now.Add(policy.CacheAge)),
	}
	return next.sealed()
}

// Activate makes the next key sign once it has been published for long enough, or now if force is
// true. The caller has made sure that every kube-apiserver accepts its tokens.
func Activate(state State, now time.Time, policy Policy, force bool) (State, error) {
	switch state.Phase() {
	case Published:
	case Activated:
		return State{}, &Refusal{
			Reason: fmt.Sprintf("key %s signs already", state.Rotation.To), Remedy: "complete the rotation or roll it back", Done: true,
		}
	case Completed:
		// The user may have forgotten to start the next one.
		return State{}, refuse(completedText(state), "nothing to do; start another one to rotate again")
	default:
		return State{}, refuse("no rotation is in progress", "start one")
	}
	if err := state.confirmed(state.Rotation.To, "who verifies with what is published there refuses new tokens"); err != nil && !force {
		return State{}, err
	}
	if wait := state.Rotation.ActivateNotBefore; now.Before(wait) && !force {
		return State{}, &Refusal{
			Reason: fmt.Sprintf("key %s was published at %s, and copies of the key set may be older than that", state.Rotation.To,
				clockTime(state.Rotation.StartedAt)),
			Remedy: "wait until " + clockTime(wait),
			Until:  wait,
			Breaks: "every verifier with a copy of the key set from before the rotation refuses new tokens until it renews the copy",
		}
	}
	now = stamp(now)
	next := state.next()
	activate(next, state.Rotation.To, now)
	retire(next, state.Rotation.From, now, policy)
	next.Rotation.Phase, next.Rotation.ActivatedAt = Activated, now
	return next.sealed()
}

// Complete ends a rotation whose new key signs. The previous key counts as retired from now on, because
// some process may have followed late; by now all processes must follow.
func Complete(state State, now time.Time, policy Policy) (State, error) {
	switch state.Phase() {
	case Activated:
	case Published:
		return State{}, refuse(fmt.Sprintf("key %s does not sign yet", state.Rotation.To), "activate it first")
	case Completed:
		return State{}, &Refusal{Reason: completedText(state), Remedy: "nothing to do", Done: true}
	default:
		return State{}, refuse("no rotation is in progress", "start one")
	}
	now = stamp(now)
	next := state.next()
	retire(next, state.Rotation.From, now, policy)
	next.Rotation.Phase, next.Rotation.EndedAt = Completed, now
	return next.sealed()
}

func completedText(state State) string {
	return fmt.Sprintf("the rotation to key %s was completed at %s", state.Rotation.To, clockTime(state.Rotation.EndedAt))
}

// activate changes s in place, as retire does: the caller has not returned s yet.
func activate(s State, id string, now time.Time) {
	key := &s.Keys[s.index(id)]
	key.Role, key.ActivatedAt = signing.Active, now
	key.RetiredAt, key.HoldUntil = time.Time{}, time.Time{}
}

// retire never moves RetiredAt back, nor before ActivatedAt: the tokens that were signed before a clock
// was set back still exist.
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

// Rollback makes the previous key of the latest rotation sign again. A new key that has never signed
// is removed; one that has signed is retired, because its tokens are in use.
func Rollback(state State, now time.Time, policy Policy) (State, error) {
	switch state.Phase() {
	case Published:
		return withdraw(state, stamp(now))
	case Activated, Completed:
		return takeBack(state, stamp(now), policy)
	case RolledBack:
		return State{}, refuse(fmt.Sprintf("the rotation to key %s was rolled back at %s", state.Rotation.To, clockTime(state.Rotation.EndedAt)),
			"nothing to do; start another rotation when the cause is fixed")
	default:
		return State{}, refuse("the ring was never rotated", "there is nothing to go back to")
	}
}

func withdraw(state State, now time.Time) (State, error) {
	next := state.next()
	i := next.index(state.Rotation.To)
	next.Withdrawn = append(next.Withdrawn, state.Rotation.To)
	next.Keys = slices.Delete(next.Keys, i, i+1)
	next.withoutKey(state.Rotation.To)
	next.Rotation.Phase, next.Rotation.EndedAt = RolledBack, now
	return next.sealed()
}

func takeBack(state State, now time.Time, policy Policy) (State, error) {
	previous, ok := state.Key(state.Rotation.From)
	if !ok {
		return State{}, refuse(fmt.Sprintf("key %s, which signed before, has been pruned", state.Rotation.From), "start a rotation to a new key")
	}
	next := state.next()
	activate(next, previous.ID, now)
	retire(next, state.Rotation.To, now, policy)
	next.Rotation.Phase, next.Rotation.EndedAt = RolledBack, now
	return next.sealed()
}

// Prune removes a retired key from the ring. Unless force is true, it refuses while tokens may need
// the key.
func Prune(state State, id string, usage Usage, now time.Time, policy Policy, force bool) (State, error) {
	key, ok := state.Key(id)
	if !ok {
		return State{}, refuse("the ring has no key "+id, "name one that it lists as retired")
	}
	if err := prunable(state, key); err != nil {
		return State{}, err
	}
	err := needed(key, usage, now, policy)
	if err == nil {
		err = state.confirmed(state.Active().ID, "who verifies with the removed key alone refuses every token")
	}
	if err != nil && !force {
		return State{}, err
	}
	next := state.next()
	i := next.index(id)
	next.Pruned = append(next.Pruned, id)
	next.Keys = slices.Delete(next.Keys, i, i+1)
	next.withoutKey(id)
	return next.sealed()
}

// Revoke removes a key from the ring although tokens need it. It completes a rotation from the key,
// and rolls back a rotation to it.
func Revoke(state State, id string, now time.Time, policy Policy) (State, error) {
	if next, ok := state.Next(); ok && next.ID == id {
		return Rollback(state, now, policy)
	}
	if state.Phase() == Activated && state.Rotation.From == id {
		completed, err := Complete(state, now, policy)
		if err != nil {
			return State{}, err
		}
		state = completed
	}
	return Prune(state, id, Usage{}, now, policy, true)
}

// StillSigns sets the retirement of a key to now, because a kube-apiserver still signs with it. The
// lifetime of its tokens and the hold-down start again.
func StillSigns(state State, id string, now time.Time, policy Policy) (State, error) {
	key, ok := state.Key(id)
	if !ok {
		return State{}, refuse("the ring has no key "+id, "name one that it lists as retired")
	}
	if key.Role != signing.Retired {
		return State{}, refuse(fmt.Sprintf("%s is not retired, but %s", keyText(key), key.Role), "nothing to do")
	}
	next := state.next()
	retire(next, id, stamp(now), policy)
	return next.sealed()
}

// prunable returns a Refusal that force does not override.
func prunable(state State, key Key) error {
	switch {
	case key.Role == signing.Active:
		return refuse(keyText(key)+" signs", "rotate to another key first")
	case key.Role == signing.Next:
		return refuse(keyText(key)+" is the next to sign", "roll the rotation back to withdraw it")
	case state.Phase() == Activated && key.ID == state.Rotation.From:
		return refuse(keyText(key)+" is what the rotation in progress would go back to", "complete the rotation first")
	}
	return nil
}

// needed returns a Refusal while tokens may need a retired key. Of several reasons it returns the one
// that lasts longest.
func needed(key Key, usage Usage, now time.Time, policy Policy) error {
	if usage.LastSigned.After(key.RetiredAt) {
		key.RetiredAt = usage.LastSigned
	}
	breaks := "every token signed with the key is refused from then on"
	switch {
	case usage.SignsElsewhere:
		return &Refusal{
			Reason: "kube-apiserver still signs bound tokens with " + keyText(key),
			Remedy: "change its --service-account-signing-key-file and restart it, and run prune right before: " +
				"the life of its tokens and the hold-down are counted from the last time that prune saw this",
			Breaks: breaks,
		}
	case usage.Secrets < 0:
		return &Refusal{
			Reason: "it is not known which token Secrets bear " + keyText(key),
			Remedy: "run the command where it can ask kube-apiserver",
			Breaks: breaks,
		}
	case usage.Secrets > 0:
		return &Refusal{
			Reason: fmt.Sprintf("%d token Secrets bear %s", usage.Secrets, keyText(key)),
			Remedy: "wait until they are replaced, or delete those that nobody uses",
			Breaks: fmt.Sprintf("the tokens of these %d Secrets are refused from then on, and so is every other token signed with the key",
				usage.Secrets),
		}
	}
	if lives := key.RetiredAt.Add(policy.TokenLifetime); now.Before(lives) {
		return &Refusal{
			Reason: fmt.Sprintf("bound tokens signed with %s may live for %s after it was retired at %s", keyText(key), policy.TokenLifetime,
				clockTime(key.RetiredAt)),
			Remedy: "wait until " + clockTime(policy.PrunableAt(key)),
			Until:  policy.PrunableAt(key),
			Breaks: "bound tokens that are still in use are refused until their holders fetch new ones",
		}
	}
	if now.Before(key.HoldUntil) {
		return &Refusal{
			Reason: fmt.Sprintf("the hold-down of %s has not ended", keyText(key)),
			Remedy: "wait until " + clockTime(key.HoldUntil),
			Until:  key.HoldUntil,
			Breaks: "the rotation can no longer be rolled back",
		}
	}
	return nil
}
