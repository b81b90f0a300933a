// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"fmt"
	"slices"
	"time"

	"sa-controller-manager/signing"
)

// Prune takes a retired key out of the ring. It refuses while anything may need the key. With
// force it does not ask: that is how a leaked key is got rid of.
func Prune(state State, id string, usage Usage, now time.Time, policy Policy, force bool) (State, error) {
	key, ok := state.Key(id)
	if !ok {
		return State{}, refuse("the ring has no key "+id, "name one that it lists as retired")
	}
	if err := prunable(state, key); err != nil {
		return State{}, err
	}
	if err := needed(key, usage, now, policy); err != nil && !force {
		return State{}, err
	}
	next := state.next()
	i := next.index(id)
	next.Pruned = append(next.Pruned, id)
	next.Keys = slices.Delete(next.Keys, i, i+1)
	return next, next.Validate()
}

// StillSigns counts a retired key as retired now: a kube-apiserver that nobody has told was found to sign with it. What its
// tokens may live and the hold-down begin anew.
func StillSigns(state State, id string, now time.Time, policy Policy) (State, error) {
	key, ok := state.Key(id)
	if !ok {
		return State{}, refuse("the ring has no key "+id, "name one that it lists as retired")
	}
	if key.Role != signing.Retired {
		return State{}, refuse(fmt.Sprintf("%s is not retired, but %s", keyText(key), key.Role), "nothing is to be done")
	}
	next := state.next()
	retire(next, id, stamp(now), policy)
	return next, next.Validate()
}

// prunable is about what not even force may do.
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

// needed refuses while something may need a retired key, the reason that takes longest to go away first.
func needed(key Key, usage Usage, now time.Time, policy Policy) error {
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
			Remedy: "let the cluster be asked",
			Breaks: breaks,
		}
	case usage.Secrets > 0:
		return &Refusal{
			Reason: fmt.Sprintf("%d token Secrets bear %s", usage.Secrets, keyText(key)),
			Remedy: "wait until they are replaced, or delete those that nobody uses",
			Breaks: fmt.Sprintf("the tokens of these %d Secrets are refused from then on, and so is every other token signed with the key", usage.Secrets),
		}
	}
	if lives := key.RetiredAt.Add(policy.TokenLifetime); now.Before(lives) {
		return &Refusal{
			Reason: fmt.Sprintf("bound tokens signed with %s may live for %s after it was retired at %s", keyText(key), policy.TokenLifetime, clockTime(key.RetiredAt)),
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
