// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// TestJoin: what signs, or has signed, in either of two forked rings is in the joined one, and
// nothing that was taken away comes back.
func TestJoin(t *testing.T) {
	t.Parallel()
	must, later := must(t), epoch.Add(9000*time.Hour)
	common := must(ring.New(newKey(0), nil, epoch, policy))
	rotated := func(state ring.State, i int) ring.State {
		t.Helper()
		state = must(ring.Publish(state, newKey(i), epoch, policy))
		state = must(ring.Activate(state, epoch, policy, true))
		return must(ring.Complete(state, epoch, policy))
	}
	ours, theirs := rotated(common, 1), must(ring.Rollback(rotated(common, 2), epoch, policy))
	joined := must(ring.Join(ours, theirs, later, policy))
	roles := map[string]signing.Role{"key-0": signing.Retired, "key-1": signing.Active, "key-2": signing.Retired}
	for id, role := range roles {
		key, _ := joined.Key(id)
		if key.Role != role || role == signing.Retired && !key.RetiredAt.Equal(later) {
			t.Errorf("key %s is %q since %v, want %q since now", id, key.Role, key.RetiredAt, role)
		}
	}
	if key, _ := joined.Key("key-2"); !key.PublicOnly {
		t.Error("the private half of the other ring's key came in")
	}
	if !joined.Knows(ours.Version()) || !joined.Knows(theirs.Version()) || joined.Generation != theirs.Generation+1 {
		t.Errorf("generation %d, history %v: not newer than both", joined.Generation, joined.History)
	}

	pruned := must(ring.Prune(ours, "key-0", ring.Usage{}, later, policy, false))
	for reason, other := range map[string]ring.State{
		"one has come from the other": common, "key key-0 signs there and was pruned here": theirs,
	} {
		if _, err := ring.Join(pruned, other, later, policy); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("joined: %v, want %q", err, reason)
		}
	}
	again := must(ring.Join(pruned, rotated(rotated(common, 3), 4), later, policy))
	if !slices.Equal(again.Pruned, []string{"key-0"}) ||
		slices.ContainsFunc(again.Keys, func(key ring.Key) bool { return key.ID == "key-0" }) {
		t.Errorf("a pruned key has come back: %v, pruned %v", ids(again), again.Pruned)
	}
}
