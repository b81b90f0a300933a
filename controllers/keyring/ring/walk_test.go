// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
)

// maxKeys bounds the walk: with four keys every relation between the previous, the new and some
// older key occurs.
const maxKeys = 4

// world is a state at a time, and how the walk came there.
type world struct {
	state ring.State
	now   time.Time
	made  int // keys so far, so that none comes twice
	path  string
}

// move is one thing that can be done to a world.
type move struct {
	name    string
	do      func(world) (ring.State, error)
	revokes []string
	prunes  string
	usage   ring.Usage
}

// shape is a world without what does not matter: names, order, and times but for whether they have come.
// The walk visits each shape once, which makes it finite.
func (w world) shape() string {
	var keys []string
	for _, key := range w.state.Keys {
		text := string(key.Role)
		if key.Role == signing.Retired {
			text = fmt.Sprintf("%s %t %t %t", text, key.ID == w.state.Previous, w.now.Before(key.RetiredAt.Add(ring.HoldDown)),
				w.now.Before(key.RetiredAt.Add(policy.TokenLifetime)))
		}
		keys = append(keys, text)
	}
	slices.Sort(keys)
	return strings.Join(keys, ";")
}

func moves(w world) []move {
	fresh := func(i int) *ring.Key { return new(newKey(w.made + i)) }
	spare := func(i int) *ring.Key {
		if len(w.state.Keys) < maxKeys {
			return fresh(i)
		}
		return nil
	}
	all := []move{
		{name: "rotate to the last one", do: func(w world) (ring.State, error) { return ring.Rotate(w.state, nil, w.now) }},
		{name: "roll back", do: func(w world) (ring.State, error) { return ring.Rollback(w.state, w.now) }},
		{name: "a known key next", do: func(w world) (ring.State, error) { return ring.Next(w.state, w.state.Keys[0], w.now) }},
	}
	if len(w.state.Keys) < maxKeys {
		all = append(all, move{name: "rotate", do: func(w world) (ring.State, error) { return ring.Rotate(w.state, fresh(0), w.now) }},
			move{name: "next", do: func(w world) (ring.State, error) { return ring.Next(w.state, *fresh(0), w.now) }})
	}
	next, _ := w.state.Next()
	revoked := [][]string{{w.state.Active().ID, cmp.Or(next.ID, "nobody")}}
	for _, id := range append(ids(w.state), "nobody") {
		revoked = append(revoked, []string{id})
		for _, usage := range []ring.Usage{{}, {Secrets: 2}, {Signer: "host a"}, {Since: w.now}} {
			all = append(all, move{
				name: fmt.Sprintf("prune %s %+v", id, usage), prunes: id, usage: usage,
				do: func(w world) (ring.State, error) { return ring.Prune(w.state, id, usage, w.now, policy) },
			})
		}
	}
	for _, ids := range revoked {
		all = append(all, move{name: fmt.Sprintf("revoke %q", ids), revokes: ids, do: func(w world) (ring.State, error) {
			return ring.Revoke(w.state, revocations(ids...), fresh(0), spare(1), w.now)
		}})
	}
	return all
}

// TestEveryReachableState walks through every shape of state that any order of transitions and
// waits leads to, makes every transition in each, and holds the outcome against the rules.
func TestEveryReachableState(t *testing.T) {
	t.Parallel()
	first := must(t)(ring.New(newKey(0), []ring.Key{newKey(1)}, new(newKey(2)), epoch))
	queue := []world{{state: first, now: epoch, made: 3}}
	seen := map[string]bool{queue[0].shape(): true}
	visit := func(w world) {
		if shape := w.shape(); !seen[shape] {
			seen[shape] = true
			queue = append(queue, w)
		}
	}
	transitions := 0
	for len(queue) > 0 {
		w := queue[0]
		queue = queue[1:]
		if again, err := decode(encode(t, w.state)); err != nil || !reflect.DeepEqual(w.state, again) {
			t.Errorf("%s: reads otherwise than it was written (%v): -want +got:\n%s", w.path, err, gocmp.Diff(w.state, again))
		}
		for _, m := range moves(w) {
			transitions++
			before := w.state.Clone()
			after, err := m.do(w)
			if !reflect.DeepEqual(before, w.state) {
				t.Fatalf("%s, %s: changed the state it was given: -want +got:\n%s", w.path, m.name, gocmp.Diff(before, w.state))
			}
			if err != nil {
				checkRefusal(t, w, m, err)
				continue
			}
			checkStep(t, w, m, after)
			visit(world{state: after, now: w.now, made: w.made + 2, path: w.path + ", " + m.name})
		}
		// The last one is a clock that is set back.
		for _, wait := range []time.Duration{ring.HoldDown, policy.TokenLifetime, -time.Hour} {
			visit(world{state: w.state, now: w.now.Add(wait), made: w.made, path: w.path + ", " + wait.String()})
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d states, %d transitions", len(seen), transitions)
}

// checkStep holds one transition that was made against the rules.
func checkStep(t *testing.T, w world, m move, after ring.State) {
	t.Helper()
	bad := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s, then %s: %s", w.path, m.name, fmt.Sprintf(format, args...))
	}
	if err := after.Validate(); err != nil {
		bad("the state is invalid: %v", err)
	}
	if has := slices.ContainsFunc(m.revokes, func(id string) bool { return slices.Contains(ids(w.state), id) }); m.revokes != nil && !has {
		if after.Version() != w.state.Version() {
			bad("a revocation of no key of the ring has made another version")
		}
		return
	}
	if after.Generation != w.state.Generation+1 {
		bad("generation is %d after %d", after.Generation, w.state.Generation)
	}
	for _, key := range w.state.Keys {
		now, stays := after.Key(key.ID)
		reason := ring.Withdrawn
		switch {
		case slices.Contains(m.revokes, key.ID):
			reason = ring.Revoked
		case m.prunes == key.ID:
			reason = ring.Pruned
		}
		switch {
		case !stays && reason == ring.Withdrawn && key.Role != signing.Next:
			bad("key %s, which is %s, is gone", key.ID, key.Role)
		case !stays && !slices.Contains(slices.Concat(after.Removed, after.Revoked),
			ring.Removed{ID: key.ID, Digest: key.ID, Reason: reason}):
			bad("it is not on record that key %s was %s", key.ID, reason)
		case stays && reason == ring.Revoked:
			bad("key %s was revoked and is there", key.ID)
		case !stays && reason == ring.Pruned &&
			(key.Role != signing.Retired || w.now.Before(key.RetiredAt.Add(policy.TokenLifetime)) || m.usage != ring.Usage{}):
			bad("key %s was pruned while it was needed", key.ID)
		case stays && key.Role != signing.Next && now.Role == signing.Next:
			bad("a key that signed is next again")
		case stays && key.Role == signing.Active && now.Role == signing.Retired && now.RetiredAt.Before(w.now):
			bad("a key counts as retired before it was")
		}
	}
	signs := after.Active()
	was, known := w.state.Key(signs.ID)
	next, hasNext := w.state.Next()
	switch {
	case !known && !slices.Contains(m.revokes, w.state.Active().ID):
		bad("a key signs that was not published before")
	case !known && hasNext && !slices.Contains(m.revokes, next.ID):
		bad("a new key signs in place of the next one")
	case known && was.Role == signing.Retired && was.ID != w.state.Previous:
		bad("a key signs that was retired before the last rotation")
	}
}

// checkRefusal wants to be told what to do, and that a time it names is the right one to the
// second.
func checkRefusal(t *testing.T, w world, m move, err error) {
	t.Helper()
	var refusal *ring.Refusal
	if !errors.As(err, &refusal) || refusal.Reason == "" || refusal.Remedy == "" {
		t.Errorf("%s, then %s: %v is no refusal with a reason and a remedy", w.path, m.name, err)
		return
	}
	if refusal.Until.IsZero() {
		return
	}
	at := w
	at.now = refusal.Until
	if _, err := m.do(at); err != nil {
		var again *ring.Refusal // another reason may last longer
		testutil.Expect(t, errors.As(err, &again) && again.Until.After(refusal.Until), "%s, then %s: refused until %s, and then too: %v",
			w.path,
			m.name, refusal.Until, err)
	}
	at.now = refusal.Until.Add(-time.Second)
	if _, err := m.do(at); err == nil {
		t.Errorf("%s, then %s: refused until %s, and allowed a second before", w.path, m.name, refusal.Until)
	}
}

// FuzzTransitions wants every transition of a state that keeps to the rules to be another such
// state or a refusal.
func FuzzTransitions(f *testing.F) {
	first := must(f)(ring.New(newKey(0), []ring.Key{newKey(1)}, new(newKey(2)), epoch))
	rotated := must(f)(ring.Rotate(first, new(newKey(3)), epoch))
	for _, state := range []ring.State{first, rotated, must(f)(ring.Revoke(rotated, revocations("key-0"), nil, nil, epoch))} {
		data := encode(f, state)
		f.Add(data)
		f.Add(bytes.ReplaceAll(data, []byte("retired"), []byte("active")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		state, err := decode(data)
		if err != nil {
			return
		}
		for _, m := range moves(world{state: state, now: epoch, made: 1000}) {
			after, err := m.do(world{state: state, now: epoch.Add(time.Hour), made: 1000})
			var refusal *ring.Refusal
			testutil.Require(t, err == nil || errors.As(err, &refusal), "%s: %v", m.name, err)
			if err == nil {
				testutil.CheckError(t, m.name, "", after.Validate())
			}
		}
	})
}
