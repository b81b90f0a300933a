// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring_test

import (
	"errors"
	"testing"
	"time"

	"sa-controller-manager/signing/ring"
)

// A ring outlives the processes that change it, so its waits go by the time of day alone: a
// jump makes them shorter or longer by as much. TestEveryReachableState has the clock set
// back anywhere. These are the cases by name.

// TestWaitAcrossAJump: the clock jumps while a published key waits.
func TestWaitAcrossAJump(t *testing.T) {
	t.Parallel()
	policy := ring.Policy{CacheAge: 3 * time.Hour}
	for name, jump := range map[string]time.Duration{"Forward": time.Hour, "Back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			now := epoch.Add(10 * time.Minute).Add(jump)
			first := must(t)(ring.New(newKey(0), nil, epoch, policy))
			published := must(t)(ring.Publish(first, newKey(1), epoch, policy))
			var refusal *ring.Refusal
			if _, err := ring.Activate(published, now, policy, false); !errors.As(err, &refusal) ||
				!refusal.Until.Equal(epoch.Add(policy.CacheAge)) {
				t.Errorf("activated at %v: %v, want a refusal until the time that was stored", now, err)
			}
			// Whatever was done when, a person gets on.
			for what, state := range map[string]ring.State{
				"withdrawn":            must(t)(ring.Rollback(published, now, policy)),
				"activated by force":   must(t)(ring.Activate(published, now, policy, true)),
				"rolled back by force": must(t)(ring.Rollback(must(t)(ring.Activate(published, now, policy, true)), now, policy)),
			} {
				if again, err := decode(encode(t, state)); err != nil || again.Validate() != nil {
					t.Errorf("%s, the state cannot be read: %v", what, err)
				}
			}
		})
	}
}

// TestRetiredAcrossAJump: no key is pruned while a token lives that it may have signed,
// though the clock was wrong when it was retired.
func TestRetiredAcrossAJump(t *testing.T) {
	t.Parallel()
	policy := ring.Policy{CacheAge: time.Hour, TokenLifetime: 48 * time.Hour, HoldDown: time.Hour}
	cases := map[string]struct{ activate, complete, still time.Duration }{
		"ForwardOnActivate":   {activate: time.Hour},
		"BackOnActivate":      {activate: -time.Hour},
		"ForwardOnComplete":   {complete: time.Hour},
		"BackOnComplete":      {complete: -time.Hour},
		"ForwardOnStillSigns": {still: time.Hour},
		"BackOnStillSigns":    {still: -time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			activated := epoch.Add(4 * time.Hour) // the previous key signs until then
			completed := activated.Add(10 * time.Minute)
			state := must(t)(ring.New(newKey(0), nil, epoch, policy))
			state = must(t)(ring.Publish(state, newKey(1), epoch, policy))
			state = must(t)(ring.Activate(state, activated.Add(tc.activate), policy, false))
			state = must(t)(ring.Complete(state, completed.Add(tc.complete), policy))
			if tc.still != 0 {
				state = must(t)(ring.StillSigns(state, newKey(0).ID, completed.Add(tc.still), policy))
			}
			var refusal *ring.Refusal
			if _, err := ring.Prune(state, newKey(0).ID, ring.Usage{}, activated.Add(policy.TokenLifetime-time.Second), policy,
				false); !errors.As(err, &refusal) {
				t.Errorf("it is pruned a second before its last token ends: %v", err)
			}
			must(t)(ring.Prune(state, newKey(0).ID, ring.Usage{}, completed.Add(policy.TokenLifetime+time.Hour), policy, false))
		})
	}
}

// TestRetiredBeforeItWasActivated: the clock was a month ahead when the ring was made, and is right
// since. Tokens of that time say that they live for a month more.
func TestRetiredBeforeItWasActivated(t *testing.T) {
	t.Parallel()
	policy := ring.Policy{CacheAge: time.Hour, TokenLifetime: 48 * time.Hour, HoldDown: time.Hour}
	ahead := epoch.Add(30 * 24 * time.Hour)
	state := must(t)(ring.New(newKey(0), nil, ahead, policy))
	state = must(t)(ring.Publish(state, newKey(1), epoch, policy))
	state = must(t)(ring.Activate(state, epoch.Add(4*time.Hour), policy, false))
	state = must(t)(ring.Complete(state, epoch.Add(5*time.Hour), policy))
	var refusal *ring.Refusal
	if _, err := ring.Prune(state, newKey(0).ID, ring.Usage{}, ahead.Add(policy.TokenLifetime-time.Second), policy,
		false); !errors.As(err, &refusal) {
		t.Errorf("it is pruned a second before its last token ends: %v", err)
	}
	must(t)(ring.Prune(state, newKey(0).ID, ring.Usage{}, ahead.Add(policy.TokenLifetime), policy, false))
}
