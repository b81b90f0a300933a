// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// maxKeys bounds the walk: with four keys every relation between the previous, the new and some
// older key occurs.
const maxKeys = 4

// world is a state at a time, and how the walk came there.
type world struct {
	state  ring.State
	policy ring.Policy
	now    time.Time
	made   int // keys so far, so that none comes twice
	path   string
}

// move is one thing that can be done to a world.
type move struct {
	name  string
	do    func(world) (ring.State, error)
	force bool
	prune string
	usage ring.Usage
}

// shape is a world without what does not matter: names, and times but for whether they have come.
// The walk visits each shape once, which makes it finite.
func (w world) shape() string {
	var b strings.Builder
	for _, key := range w.state.Keys {
		fmt.Fprintf(&b, "%s %t %t %t %t;", key.Role, key.PublicOnly, key.ActivatedAt.IsZero(),
			w.now.Before(key.HoldUntil), w.now.Before(w.policy.PrunableAt(key)) && key.Role == signing.Retired)
	}
	if r := w.state.Rotation; r != nil {
		index := func(id string) int {
			return slices.IndexFunc(w.state.Keys, func(key ring.Key) bool { return key.ID == id })
		}
		fmt.Fprintf(&b, "%s %d %d %t", r.Phase, index(r.From), index(r.To), w.now.Before(r.ActivateNotBefore))
	}
	return b.String()
}

func moves(w world) []move {
	all := []move{
		{name: "activate", do: func(w world) (ring.State, error) { return ring.Activate(w.state, w.now, w.policy, false) }},
		{name: "activate by force", force: true, do: func(w world) (ring.State, error) { return ring.Activate(w.state, w.now, w.policy, true) }},
		{name: "complete", do: func(w world) (ring.State, error) { return ring.Complete(w.state, w.now, w.policy) }},
		{name: "roll back", do: func(w world) (ring.State, error) { return ring.Rollback(w.state, w.now, w.policy) }},
		{name: "publish a known key", do: func(w world) (ring.State, error) {
			return ring.Publish(w.state, w.state.Keys[0], w.now, w.policy)
		}},
	}
	if len(w.state.Keys) < maxKeys {
		all = append(all, move{name: "publish", do: func(w world) (ring.State, error) {
			return ring.Publish(w.state, newKey(w.made), w.now, w.policy)
		}})
	}
	for _, id := range append(ids(w.state), "nobody") {
		all = append(all, move{name: id + " still signs", do: func(w world) (ring.State, error) {
			return ring.StillSigns(w.state, id, w.now, w.policy)
		}})
		for _, usage := range []ring.Usage{{}, {Secrets: 2}, {Secrets: -1}, {SignsElsewhere: true}} {
			for _, force := range []bool{false, true} {
				all = append(all, move{
					name: fmt.Sprintf("prune %s %+v %t", id, usage, force), prune: id, usage: usage, force: force,
					do: func(w world) (ring.State, error) {
						return ring.Prune(w.state, id, usage, w.now, w.policy, force)
					},
				})
			}
		}
	}
	return all
}

// TestEveryReachableState walks through every shape of state that any order of transitions and
// waits leads to, makes every transition in each, and holds the outcome against the rules of the
// package comment.
func TestEveryReachableState(t *testing.T) {
	t.Parallel()
	impatient := policy
	impatient.TokenLifetime = time.Minute // the hold-down outlives the tokens
	for name, policy := range map[string]ring.Policy{"long tokens": policy, "short tokens": impatient} {
		t.Run(name, func(t *testing.T) { t.Parallel(); walk(t, policy) })
	}
}

func walk(t *testing.T, policy ring.Policy) {
	t.Helper()
	imported := newKey(1)
	imported.PublicOnly = true
	first, err := ring.New(newKey(0), []ring.Key{imported}, epoch, policy)
	if err != nil {
		t.Fatal(err)
	}
	queue := []world{{state: first, policy: policy, now: epoch, made: 2}}
	seen := map[string]bool{queue[0].shape(): true}
	phases := map[ring.Phase]int{}
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
		phases[w.state.Phase()]++
		mayEnd(t, w)
		checkEncoding(t, w)
		for _, m := range moves(w) {
			transitions++
			before := w.state.Clone()
			after, err := m.do(w)
			if !reflect.DeepEqual(before, w.state) {
				t.Fatalf("%s, %s: changed the state it was given: -want +got:\n%s", w.path, m.name, cmp.Diff(before, w.state))
			}
			if err != nil {
				checkRefusal(t, w, m, err)
				continue
			}
			checkStep(t, w, m, after)
			visit(world{state: after, policy: policy, now: w.now, made: w.made + 1, path: w.path + ", " + m.name})
		}
		// The last one is a clock that is set back.
		for _, wait := range []time.Duration{w.policy.CacheAge, w.policy.HoldDown, w.policy.TokenLifetime, -time.Hour} {
			visit(world{state: w.state, policy: policy, now: w.now.Add(wait), made: w.made, path: w.path + ", " + wait.String()})
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d states, %d transitions, by phase: %v", len(seen), transitions, phases)
	for _, phase := range []ring.Phase{ring.Idle, ring.Published, ring.Activated, ring.Completed, ring.RolledBack} {
		if phases[phase] == 0 {
			t.Errorf("no state of phase %q was reached", phase)
		}
	}
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
	if after.Generation != w.state.Generation+1 {
		bad("generation is %d after %d", after.Generation, w.state.Generation)
	}
	for _, key := range w.state.Keys {
		now, stays := after.Key(key.ID)
		switch {
		case !stays && m.prune != key.ID && key.Role != signing.Next:
			bad("key %s, which is %s, is gone", key.ID, key.Role)
		case !stays && key.Role == signing.Active:
			bad("the active key is gone")
		case !stays && m.prune == key.ID != slices.Contains(after.Pruned, key.ID), !stays &&
			m.prune != key.ID != slices.Contains(after.Withdrawn, key.ID):
			bad("it is not on record that key %s is gone", key.ID)
		case !stays && m.prune == key.ID && !m.force &&
			(w.now.Before(key.RetiredAt.Add(w.policy.TokenLifetime)) || w.now.Before(key.HoldUntil) || m.usage != ring.Usage{}):
			bad("key %s was pruned while it was needed", key.ID)
		case stays && key.Role == signing.Active && now.Role == signing.Next:
			bad("a key that signed is next again")
		case stays && key.Role == signing.Next && now.Role == signing.Active && !m.force && w.now.Sub(key.PublishedAt) < w.policy.CacheAge:
			bad("a key signs that was published %s ago", w.now.Sub(key.PublishedAt))
		case stays && key.Role == signing.Active && now.Role == signing.Retired && now.RetiredAt.Before(w.now):
			bad("a key counts as retired before it was")
		case stays && key.Role == signing.Retired && now.Role == signing.Retired && now.RetiredAt.Before(key.RetiredAt):
			bad("a key counts as retired earlier than before")
		case stays && m.name == key.ID+" still signs" &&
			(now.Role != signing.Retired || now.RetiredAt.Before(w.now) || now.HoldUntil.Before(w.now.Add(w.policy.HoldDown))):
			bad("what it signs now is not waited for")
		}
	}
	if _, known := w.state.Key(after.Active().ID); !known {
		bad("a key signs that was not published before")
	}
}

// checkEncoding wants a state to survive being stored.
func checkEncoding(t *testing.T, w world) {
	t.Helper()
	again, err := decode(encode(t, w.state))
	if err != nil || !reflect.DeepEqual(w.state, again) {
		t.Errorf("%s: reads otherwise than it was written (%v): -want +got:\n%s", w.path, err, cmp.Diff(w.state, again))
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
	if m.force && refusal.Breaks != "" {
		t.Errorf("%s, then %s: refused %v although forced", w.path, m.name, err)
	}
	if refusal.Until.IsZero() {
		return
	}
	at := w
	at.now = refusal.Until
	if _, err := m.do(at); err != nil {
		t.Errorf("%s, then %s: refused until %s, and then too: %v", w.path, m.name, refusal.Until, err)
	}
	at.now = refusal.Until.Add(-time.Second)
	if _, err := m.do(at); err == nil {
		t.Errorf("%s, then %s: refused until %s, and allowed a second before", w.path, m.name, refusal.Until)
	}
}

// mayEnd wants a way back from every rotation in progress, whatever the time.
func mayEnd(t *testing.T, w world) {
	t.Helper()
	if !w.state.InProgress() {
		return
	}
	back, err := ring.Rollback(w.state, w.now, w.policy)
	if err != nil {
		t.Errorf("%s: cannot be rolled back: %v", w.path, err)
		return
	}
	if back.Active().ID != w.state.Rotation.From {
		t.Errorf("%s: rolled back to %s, want %s", w.path, back.Active().ID, w.state.Rotation.From)
	}
}
