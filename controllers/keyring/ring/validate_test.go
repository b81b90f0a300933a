// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
)

// TestValidateRefuses spoils a good state in one way at a time.
func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	const active, retired, next = 0, 1, 2 // among the keys
	again := func(s *ring.State, i int) {
		s.Keys = append(s.Keys, s.Keys[i])
		s.Keys[len(s.Keys)-1].ID = "again"
	}
	remote := func(s *ring.State, keys ...int) {
		for _, i := range keys {
			s.Keys[i].Signer = "kep740:a"
		}
	}
	gone := func(s *ring.State, id, digest string, reason ring.Reason) {
		s.Removed = []ring.Removed{{ID: id, Digest: digest, Reason: reason}}
	}
	cases := map[string]struct {
		spoil func(*ring.State)
		want  string
	}{
		"no version":           {func(s *ring.State) { s.SchemaVersion = 0 }, "schemaVersion is 0, want 1"},
		"no generation":        {func(s *ring.State) { s.Generation = 0 }, `history ends with version "1:`},
		"no keys":              {func(s *ring.State) { s.Keys = nil }, "0 of them are active and 0 are next, want exactly one"},
		"two active":           {func(s *ring.State) { again(s, active) }, "keys: 2 of them are active and 1 are next, want exactly one"},
		"two next":             {func(s *ring.State) { again(s, next) }, "keys: 1 of them are active and 2 are next, want exactly one and"},
		"same ID":              {func(s *ring.State) { s.Keys[retired].ID = "key-0" }, `keys[1]: key ID "key-0" is there twice`},
		"bad ID":               {func(s *ring.State) { s.Keys[active].ID = "../a" }, `history ends with version`},
		"no ID":                {func(s *ring.State) { s.Keys[active].ID = "" }, `keys[0]: key ID ""`},
		"foreign ID":           {func(s *ring.State) { remote(s, next); s.Keys[next].ID = "a b" }, `key ID "a b": want 1 to`},
		"signer twice":         {func(s *ring.State) { remote(s, active, next) }, "keys[2]: kep740:a is there twice: one signer"},
		"bad role":             {func(s *ring.State) { s.Keys[next].Role = "spare" }, "history ends with version"},
		"never published":      {func(s *ring.State) { s.Keys[next].PublishedAt = time.Time{} }, "history ends with version"},
		"never activated":      {func(s *ring.State) { s.Keys[active].ActivatedAt = time.Time{} }, "history ends with version"},
		"active and retired":   {func(s *ring.State) { s.Keys[active].RetiredAt = epoch }, "history ends with version"},
		"never retired":        {func(s *ring.State) { s.Keys[retired].RetiredAt = time.Time{} }, "history ends with version"},
		"active half":          {func(s *ring.State) { s.Keys[active].PublicOnly = true }, "publicOnly is true, want the private half"},
		"next that signs":      {func(s *ring.State) { s.Keys[next].ActivatedAt = epoch }, "history ends with version"},
		"next that signed":     {func(s *ring.State) { s.Keys[next].RetiredAt = epoch }, "history ends with version"},
		"previous is gone":     {func(s *ring.State) { s.Previous = "b" }, `previous: "b" is no retired key`},
		"previous signs":       {func(s *ring.State) { s.Previous = "key-0" }, `previous: "key-0" is no retired key`},
		"previous is half":     {func(s *ring.State) { s.Previous = "key-1" }, "want the private half of the previous key and of no other"},
		"another private half": {func(s *ring.State) { s.Keys[retired].PublicOnly = false }, "publicOnly is false, want the private half"},
		"gone and there":       {func(s *ring.State) { gone(s, "key-0", "a", ring.Pruned) }, `"key-0" is a key of the ring, no key ID`},
		"no key removed":       {func(s *ring.State) { gone(s, "a b", "a", ring.Pruned) }, `"a b" is a key of the ring, no key ID`},
		"no digest":            {func(s *ring.State) { gone(s, "b", "", ring.Pruned) }, "without a digest"},
		"no reason":            {func(s *ring.State) { gone(s, "b", "b", "") }, `reason "" is neither pruned nor withdrawn`},
		"no history":           {func(s *ring.State) { s.History = nil }, `history ends with version ""`},
		"edited":               {func(s *ring.State) { s.Generation = 2 }, `history ends with version "1:`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			state := must(t)(ring.New(newKey(0), []ring.Key{newKey(1)}, new(newKey(2)), epoch))
			tc.spoil(&state)
			err := state.Validate()
			testutil.CheckError(t, "error", tc.want, err)
		})
	}
}

// TestTransitions has what the walk cannot see, because its keys have no public half and no signer.
func TestTransitions(t *testing.T) {
	t.Parallel()
	hsm := func(i int, name string) *ring.Key {
		key := newKey(i)
		key.Signer = "kep740:" + name
		return &key
	}
	must := must(t)
	first := must(ring.New(newKey(0), nil, hsm(1, "a"), epoch))
	second := must(ring.Rotate(first, hsm(2, "b"), epoch))
	third := must(ring.Rotate(second, hsm(3, "c"), epoch))
	for reason, tc := range map[string]struct {
		state ring.State
		err   error
		want  string
	}{
		"one signer is one key": {err: second2(ring.Next(first, *hsm(5, "a"), epoch)), want: ""},
		"of the active key": {
			err: second2(ring.Next(second, *hsm(5, "a"), epoch)), want: "kep740:a is the signer of key key-1",
		},
		"the name is free a rotation later": {err: second2(ring.Next(must(ring.Rotate(third, nil, epoch)), *hsm(5, "a"), epoch)), want: ""},
		"the next key of the kind undone":   {err: second2(ring.Rollback(second, epoch)), want: ""},
		"both gone, and none in the file": {
			err: second2(ring.Revoke(second, revocations("key-1", "key-2"), nil, nil, epoch)), want: "keys next --algorithm",
		},
		"there is no next key": {
			err: second2(ring.Rotate(must(ring.Rotate(first, nil, epoch)), nil, epoch)), want: "make one with keys next",
		},
		"the same key": {err: second2(ring.Next(first, *hsm(1, "a"), epoch)), want: "is the next one already"},
		"it was withdrawn": {
			err: second2(ring.Next(must(ring.Next(first, newKey(4), epoch)), *hsm(1, "a"), epoch)), want: "was withdrawn before",
		},
		"once": {
			err: second2(ring.Rollback(must(ring.Rollback(second, epoch)), epoch)), want: "no rotation to roll back",
		},
		"revoked again": {
			err: second2(ring.Revoke(must(ring.Revoke(second, revocations("key-0"), nil, nil, epoch)), revocations("key-0"), nil, nil,
				epoch)),
			want: "nothing to do",
		},
		"what may be rolled back to, a day": {
			err:  second2(ring.Prune(second, "key-0", ring.Usage{}, epoch.Add(ring.HoldDown-time.Second), ring.Policy{})),
			want: "is what keys rollback goes back to",
		},
		"a clock may be an hour off, whatever the life of tokens is": {
			err: second2(ring.Prune(third, "key-0", ring.Usage{}, epoch, ring.Policy{})), want: "bound tokens signed with key key-0",
		},
		"what may not is pruned then": {
			err: second2(ring.Prune(third, "key-0", ring.Usage{}, epoch.Add(ring.ClockSkew), ring.Policy{})), want: "",
		},
	} {
		testutil.Expect(t, (tc.err == nil) == (tc.want == "") && (tc.err == nil || strings.Contains(tc.err.Error(), tc.want)),
			"%s: %v, want %q",
			reason, tc.err, tc.want)
	}
	back := must(ring.Rollback(second, epoch))
	_, ok := back.Next()
	testutil.Expect(t, !ok && back.Active().ID == "key-0", "after a rollback from an HSM its next key is next: %+v", back)
	if withdrawn := must(ring.Revoke(back, revocations("key-2"), nil, nil, epoch)); len(withdrawn.Revoked) != 1 ||
		withdrawn.Version() != back.Version() {
		t.Errorf("a withdrawn key cannot be revoked, or the ring is of another generation: %+v", withdrawn)
	}
	key, _ := third.Key("key-0")
	testutil.Expect(t, key.PublicOnly && third.Previous == "key-1", "the file keeps the private half of a key that nothing goes back to")
}

// TestAcceptOlder: a backup that is taken is newer than what was lost, and nothing that is revoked comes back.
func TestAcceptOlder(t *testing.T) {
	t.Parallel()
	must := must(t)
	backup := must(ring.New(newKey(0), nil, new(newKey(1)), epoch))
	lost := must(ring.Rotate(backup, new(newKey(2)), epoch))
	lost = must(ring.Revoke(lost, revocations("key-0"), nil, nil, epoch))
	accepted := must(ring.AcceptOlder(backup, lost.Generation, lost.History, "key-1", nil, epoch))
	testutil.Expect(t, accepted.Knows(lost.Version()) && accepted.Knows(backup.Version()) && accepted.Generation == lost.Generation+1,
		"the ring that is accepted is not the newest: generation %d, history %q", accepted.Generation, accepted.History)
	testutil.Expect(t, accepted.Active().ID == "key-1" && accepted.Previous == "key-0", "%s signs, want the key that has signed last",
		accepted.Active().ID)
	// A revocation counts for a key that a file still has, and is of no generation.
	accepted.Revoked = lost.Revoked
	again, err := decode(encode(t, accepted))
	if _, there := again.Effective().Key("key-0"); err != nil || there || again.Version() != accepted.Version() {
		t.Errorf("read again: the revoked key is there: %t, %v", there, err)
	}
}

// TestAcceptOlderSigns: a copy of which all keys were revoked since stopped every host.
func TestAcceptOlderSigns(t *testing.T) {
	t.Parallel()
	must := must(t)
	backup := must(ring.New(newKey(0), nil, new(newKey(1)), epoch))
	backup.Revoked = revocations("key-0", "key-1")
	accepted := must(ring.AcceptOlder(backup, 5, nil, "key-7", new(newKey(2)), epoch))
	testutil.Expect(t, accepted.Active().ID == "key-2" && len(accepted.Keys) == 1, "%+v signs, and the ring has %d keys", accepted.Active(),
		len(accepted.Keys))
	refusedWith := func(_ ring.State, err error) bool { return err != nil }
	testutil.Expect(t, refusedWith(ring.AcceptOlder(backup, 5, nil, "key-7", nil, epoch)), "a ring without a key that signs is accepted")
}

func second2(_ ring.State, err error) error { return err }

// TestApply: a late host follows with its own next key, and applies every revocation.
// TestHistory: what every host publishes is bounded, and a copy that is not too old is known.
func TestHistory(t *testing.T) {
	t.Parallel()
	state := must(t)(ring.New(newKey(0), nil, nil, epoch))
	var first, later string
	for i := range 1100 {
		state = must(t)(ring.Next(state, newKey(i+1), epoch))
		if state, err := decode(encode(t, state)); err != nil || len(state.History) > 1000 {
			t.Fatalf("change %d: %d versions, %v", i, len(state.History), err)
		}
		switch i {
		case 0:
			first = state.Version()
		case 500:
			later = state.Version()
		}
	}
	testutil.Expect(t, len(state.History) == 1000 && !state.Knows(first) && state.Knows(later),
		"%d versions, the first one known: %t, a later one: %t", len(state.History), state.Knows(first), state.Knows(later))
}

func TestApply(t *testing.T) {
	t.Parallel()
	state := must(t)(ring.New(newKey(0), nil, new(newKey(1)), epoch))
	gone := func(ids ...string) (removed []ring.Removed) {
		for _, id := range ids {
			removed = append(removed, ring.Removed{ID: "x-" + id, Digest: id, Reason: ring.Revoked})
		}
		return removed
	}
	for name, tc := range map[string]struct {
		desired ring.Desired
		want    string
	}{
		"nothing":                {ring.Desired{}, "key-0 active, key-1 next"},
		"the next one signs":     {ring.Desired{Active: "key-1"}, "key-1 active, key-0 retired"},
		"a key that is not here": {ring.Desired{Active: "key-7"}, "key-0 active, key-1 next"},
		"the active is revoked":  {ring.Desired{Revoked: gone("key-0")}, "key-1 active"},
		"the next is revoked":    {ring.Desired{Revoked: gone("key-1")}, "key-0 active"},
		"both":                   {ring.Desired{Active: "key-1", Revoked: gone("key-0", "key-1")}, ""},
	} {
		var got []string
		applied := state.Apply(tc.desired)
		for _, key := range applied.All() {
			got = append(got, key.ID+" "+string(key.Role))
		}
		text := strings.Join(got, ", ")
		testutil.Expect(t, text == tc.want, "%s: %s, want %s", name, text, tc.want)
		for _, revoked := range tc.desired.Revoked {
			testutil.Expect(t, applied.KeySet().Revoked(revoked.Digest) && !applied.KeySet().Revoked("key-7"),
				"%s: it does not say what was revoked", name)
		}
	}
}

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
	joined := must(ring.Join(ours, theirs, nil, later))
	for id, role := range map[string]signing.Role{
		"key-0": signing.Retired, "key-1": signing.Active, "key-2": signing.Next, "key-3": signing.Retired, "key-4": signing.Retired,
	} {
		key, _ := joined.Key(id)
		testutil.Expect(t, key.Role == role && (role != signing.Retired || key.RetiredAt.Equal(later)),
			"key %s is %q since %v, want %q since now", id, key.Role, key.RetiredAt, role)
	}
	testutil.Expect(t, joined.Knows(ours.Version()) && joined.Knows(theirs.Version()) && joined.Generation == theirs.Generation+1,
		"generation %d, history %v: not newer than both", joined.Generation, joined.History)

	pruned := must(ring.Prune(ours, "key-9", ring.Usage{}, later, policy))
	again := must(ring.Join(pruned, theirs, nil, later))
	testutil.Expect(t, again.Active().ID == "key-1" && len(again.Removed) == 0, "what one side alone has pruned is gone: %+v", again)
	_, err := ring.Join(pruned, common, nil, later)
	testutil.Expect(t, err != nil && strings.Contains(err.Error(), "one has come from the other"), "joined: %v", err)

	revoke := func(state ring.State, ids ...string) ring.State {
		return must(ring.Revoke(state, revocations(ids...), nil, nil, later))
	}
	for name, joined := range map[string]ring.State{
		"by us": must(ring.Join(revoke(ours, "key-0"), theirs, nil, later)), "by them": must(ring.Join(ours, revoke(theirs, "key-0"), nil,
			later)),
	} {
		_, there := joined.Key("key-0")
		testutil.Expect(t, !there && slices.Contains(joined.Revoked, ring.Removed{ID: "key-0", Digest: "key-0", Reason: ring.Revoked}),
			"revoked %s, and it came back", name)
	}
	if joined := must(ring.Join(ours, revoke(theirs, "key-1"), nil, later)); joined.Active().ID != "key-2" {
		t.Errorf("%s signs, want the next key, since the active one was revoked there", joined.Active().ID)
	}
}

var (
	epoch  = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	policy = ring.Policy{CacheAge: time.Hour, TokenLifetime: 365 * 24 * time.Hour}
)

// newKey is the i-th key ever made. RSA and EC keys alternate.
func newKey(i int) ring.Key {
	algorithms := [2]string{"RS256", "ES256"}
	return ring.Key{Key: signing.PublicKey{ID: fmt.Sprintf("key-%d", i), Algorithm: algorithms[i%2]}.As(signing.Next)}
}

func revocations(ids ...string) (gone []ring.Removed) {
	for _, id := range ids {
		gone = append(gone, ring.Removed{ID: id, Digest: id, Reason: ring.Revoked})
	}
	return gone
}

func ids(state ring.State) []string {
	var all []string
	for _, key := range state.Keys {
		all = append(all, key.ID)
	}
	return all
}

func encode(t testing.TB, state ring.State) []byte {
	t.Helper()
	testutil.Must(t, state.Validate())
	return testutil.Get(json.Marshal(state))(t)
}

// decode is how a state is read, without its keys.
func decode(data []byte) (state ring.State, err error) {
	if err := json.Unmarshal(data, &state); err != nil {
		return state, err
	}
	return state, state.Validate()
}

// must unwraps a transition that must be made.
func must(t testing.TB) func(ring.State, error) ring.State {
	t.Helper()
	return func(state ring.State, err error) ring.State {
		t.Helper()
		testutil.Must(t, err)
		return state
	}
}
