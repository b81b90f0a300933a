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

// TestJoin: what signs, or has signed, in either of two forked rings is in the joined one, also if one of
// them has pruned it, and nothing that either has revoked.
func TestJoin(t *testing.T) {
	t.Parallel()
	must, later := must(t), epoch.Add(9000*time.Hour)
	rotated := func(state ring.State, next int) ring.State {
		t.Helper()
		return must(ring.Rotate(state, new(newKey(next)), epoch))
	}
	common := must(ring.New(newKey(0), []ring.Key{newKey(9)}, new(newKey(1)), epoch))
	ours, theirs := rotated(common, 2), rotated(rotated(common, 3), 4)
	joined := must(ring.Join(ours, theirs, later))
	for id, role := range map[string]signing.Role{
		"key-0": signing.Retired, "key-1": signing.Active, "key-2": signing.Next, "key-3": signing.Retired, "key-4": signing.Retired,
	} {
		key, _ := joined.Key(id)
		if key.Role != role || role == signing.Retired && !key.RetiredAt.Equal(later) {
			t.Errorf("key %s is %q since %v, want %q since now", id, key.Role, key.RetiredAt, role)
		}
	}
	if !joined.Knows(ours.Version()) || !joined.Knows(theirs.Version()) || joined.Generation != theirs.Generation+1 {
		t.Errorf("generation %d, history %v: not newer than both", joined.Generation, joined.History)
	}

	pruned := must(ring.Prune(ours, "key-9", ring.Usage{}, later, policy))
	if again := must(ring.Join(pruned, theirs, later)); again.Active().ID != "key-1" || len(again.Removed) != 0 {
		t.Errorf("what one side alone has pruned is gone: %+v", again)
	}
	if _, err := ring.Join(pruned, common, later); err == nil || !strings.Contains(err.Error(), "one has come from the other") {
		t.Errorf("joined: %v", err)
	}

	revoke := func(state ring.State, ids ...string) ring.State {
		return must(ring.Revoke(state, ids, nil, nil, later))
	}
	for name, joined := range map[string]ring.State{
		"by us": must(ring.Join(revoke(ours, "key-0"), theirs, later)), "by them": must(ring.Join(ours, revoke(theirs, "key-0"), later)),
	} {
		_, there := joined.Key("key-0")
		if there || !slices.Contains(joined.Removed, ring.Removed{ID: "key-0", Digest: "key-0", Reason: ring.Revoked}) {
			t.Errorf("revoked %s, and it came back", name)
		}
	}
	if joined := must(ring.Join(ours, revoke(theirs, "key-1"), later)); joined.Active().ID != "key-2" {
		t.Errorf("%s signs, want the next key, since the active one was revoked there", joined.Active().ID)
	}
}
