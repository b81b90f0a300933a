// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// The tests below are about mistakes that Vault's identity engine has made with keys that rotate.

func newRingKey(t *testing.T) *ring.Key {
	t.Helper()
	private, err := signing.GenerateKey("P-256")
	testutil.Must(t, err)
	key := ring.KeyOf(private)
	return &key
}

func newState(t *testing.T, next *ring.Key, now time.Time) ring.State {
	t.Helper()
	state, err := ring.New(*newRingKey(t), nil, next, now)
	testutil.Must(t, err)
	return state
}

// refusedUntil returns the time of a refusal.
func refusedUntil(t *testing.T, err error) time.Time {
	t.Helper()
	refusal, ok := errors.AsType[*ring.Refusal](err)
	if !ok || refusal.Until.IsZero() {
		t.Fatalf("got %v, want a refusal until some time", err)
	}
	return refusal.Until
}

// TestVault11441KeyOutlivesItsTokens: in hashicorp/vault#11441 tokens lived longer than the key that verifies them.
// Here a key is pruned once the last of its tokens has expired, and not a second before, also if a late host has signed
// with it for longer.
func TestVault11441KeyOutlivesItsTokens(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for _, lifetime := range []time.Duration{25 * time.Hour, 365 * 24 * time.Hour} {
		for _, late := range []time.Duration{0, time.Hour} {
			before := newState(t, newRingKey(t), now)
			state, err := ring.Rotate(before, newRingKey(t), now)
			testutil.Must(t, err)
			expires := now.Add(late + lifetime)
			prune := func(at time.Time) error {
				_, err := ring.Prune(state, before.Active().ID, ring.Usage{Since: now.Add(late)}, at, ring.Policy{TokenLifetime: lifetime})
				return err
			}
			if got := refusedUntil(t, prune(now)); !got.Equal(expires) {
				t.Errorf("lifetime %s: refused until %s, want %s", lifetime, got, expires)
			}
			if prune(expires.Add(-time.Second)) == nil {
				t.Errorf("lifetime %s: pruned before %s", lifetime, expires)
			}
			if err := prune(expires); err != nil {
				t.Errorf("lifetime %s: refused afterwards: %v", lifetime, err)
			}
		}
	}
}

// TestVault11438RotatesWhenDue: in hashicorp/vault#11438 keys rotated by a tick of a minute, so up to a minute late. Here
// a rotation is due in the very second in which no cache can be without the next key, and not in the one before.
func TestVault11438RotatesWhenDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	state := newState(t, newRingKey(t), now)
	for range 20 {
		next, _ := state.Next()
		line := LineOf(state)
		line.Host, line.Renewed, line.NextSince, line.Signs = "cp1", now, now, []string{state.Active().ID, next.ID}
		place := Place{Keys: map[string]time.Time{next.ID: now}, CacheSeconds: 7}
		p := Published{Lines: []Line{line}, Places: map[string]Place{"https://issuer": place}}
		testutil.Must(t, p.MayUse(state, next, "cp1", nil, now))
		due := now.Add(7 * time.Second)
		if got := refusedUntil(t, p.Cached(state, nil, 5*time.Second, now)); !got.Equal(due) {
			t.Fatalf("refused until %s, want %s", got, due)
		}
		if p.Cached(state, nil, 5*time.Second, due.Add(-time.Second)) == nil {
			t.Fatal("due a second too early")
		}
		testutil.Must(t, p.Cached(state, nil, 5*time.Second, due))
		now = due
		var err error
		state, err = ring.Rotate(state, newRingKey(t), now)
		testutil.Must(t, err)
	}
}

// TestVault13223NoNextKey: in hashicorp/vault#13223 a rotation without a next key panicked. Here it is refused, and
// nothing else is.
func TestVault13223NoNextKey(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for name, state := range map[string]ring.State{
		"new": newState(t, nil, now),
		"rotated": func() ring.State {
			state, err := ring.Rotate(newState(t, newRingKey(t), now), nil, now)
			testutil.Must(t, err)
			return state
		}(),
	} {
		if _, err := ring.Rotate(state, newRingKey(t), now); err == nil || !strings.Contains(err.Error(), "make one with keys next") {
			t.Errorf("%s: rotate: %v", name, err)
		}
		orders := (&Published{Lines: []Line{LineOf(state)}}).Orders(state, "cp1")
		if got := state.Obeying(orders).ActiveID(); got != state.Active().ID {
			t.Errorf("%s: %q signs", name, got)
		}
		after, err := ring.Next(state, *newRingKey(t), now)
		if err == nil {
			_, err = ring.Rotate(after, nil, now)
		}
		if err != nil {
			t.Errorf("%s: next, then rotate: %v", name, err)
		}
		revoked, err := ring.Revoke(state, []string{state.Active().ID}, newRingKey(t), nil, now)
		if err != nil || revoked.Active().ID == state.Active().ID {
			t.Errorf("%s: revoke: %v", name, err)
		}
	}
}
