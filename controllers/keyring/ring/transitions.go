// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sa-controller-manager/signing"
)

// HoldDown is how long the key that Rollback goes back to is not pruned: the time to notice a mistake.
const HoldDown = 24 * time.Hour

// ClockSkew is added to the life of tokens: the clocks of hosts may differ by as much.
const ClockSkew = time.Hour

// Policy has the waiting times of a rotation. The zero Policy waits for nothing.
type Policy struct {
	// CacheAge is the greatest age of a copy of the key set that a verifier uses. kube-apiserver
	// lets readers of its JWKS cache it for an hour.
	CacheAge time.Duration
	// TokenLifetime is the longest life of a bound token. With
	// --service-account-extend-token-expiration, which is kube-apiserver's default, that is a year.
	TokenLifetime time.Duration
}

// Usage is what is known about the use of a retired key.
type Usage struct {
	// Secrets is the number of token Secrets with the key ID.
	Secrets int
	// Signer names a host, kube-apiserver or token controller that still signs with the key, "" if none does.
	Signer string
	// Since is when it was first seen that none does.
	Since time.Time
}

// Refusal is the error of a refused transition. The state is unchanged.
type Refusal struct { //nolint:errname // an answer to the user rather than a failure
	// Reason is why.
	Reason string
	// Remedy is what to do instead.
	Remedy string
	// Until is when the same transition will be allowed if nothing else changes, zero if time alone
	// does not help.
	Until time.Time
	// Later means that it may be allowed later, at a time that is not known.
	Later bool
	// Breaks is what goes wrong if the transition is forced, "" if it cannot be forced.
	Breaks string
	// Done means that the transition was made before, such as by an interrupted command.
	Done bool
}

// Error is the reason and the remedy.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Remedy }

// New returns the state of a new ring: active signs, retired keys, such as those of kube-apiserver's key
// files, verify, and next is nil if there is none.
func New(active Key, retired []Key, next *Key, now time.Time) (State, error) {
	now = stamp(now)
	state := State{SchemaVersion: SchemaVersion, Generation: 1}
	active.Role, active.PublishedAt, active.ActivatedAt = signing.Active, now, now
	state.Keys = append(state.Keys, active)
	for _, key := range retired {
		// Another program may have signed with it until now.
		key.Private, key.PublicOnly = nil, true
		key.Role, key.PublishedAt, key.RetiredAt = signing.Retired, now, now
		state.Keys = append(state.Keys, key)
	}
	return state.withNext(next, now)
}

// Rotate makes the next key the active one, and next, unless it is nil, the one after that. The caller has
// made sure that every live host has the next key and that every kube-apiserver accepts its tokens.
func Rotate(state State, next *Key, now time.Time) (State, error) {
	key, ok := state.Next()
	if !ok {
		return State{}, Refuse("the ring has no next key", "make one with keys next")
	}
	after := state.next()
	after.promote(key.ID, stamp(now))
	return after.withNext(next, now)
}

// Next replaces the next key, or adds one. The key that it replaces has never signed here and is withdrawn.
func Next(state State, key Key, now time.Time) (State, error) {
	after := state.next()
	if next, ok := state.Next(); ok {
		if next.ID == key.ID {
			return State{}, &Refusal{Reason: keyText(key) + " is the next one already", Remedy: "nothing to do", Done: true}
		}
		after.remove(next, Withdrawn)
	}
	return after.withNext(&key, now)
}

// Rollback makes the key sign again that the last rotation retired, once. A next key of another kind is withdrawn,
// because going on would lead to what was just undone: then Next adds another one.
func Rollback(state State, now time.Time) (State, error) {
	previous, ok := state.Key(state.Previous)
	if !ok {
		return State{}, Refuse("no rotation to roll back: there was none since the last rollback, or its key was removed",
			"run keys rotate; for another key type first keys next")
	}
	after := state.next()
	after.promote(previous.ID, stamp(now))
	after.Previous = ""
	if next, ok := state.Next(); ok && next.Kind() != previous.Kind() {
		after.remove(next, Withdrawn)
	}
	return after.withNext(nil, now)
}

// Revoke adds revocations, and removes the revoked keys from the ring. If the active key is among them, the
// next one signs, or else active. If there is no next key then, next becomes it, unless it is nil. A ring
// that has none of the keys stays of its generation.
func Revoke(state State, gone []Removed, active, next *Key, now time.Time) (State, error) {
	after := state.next()
	after.Revoked = Union(state.Revoked, gone)
	if !after.dropRevoked() {
		if len(after.Revoked) == len(state.Revoked) {
			return State{}, &Refusal{Reason: "the keys are revoked", Remedy: "nothing to do", Done: true}
		}
		after.Generation = state.Generation
		return after, nil
	}
	if _, signs := after.first(signing.Active); !signs {
		after.Previous = "" // it may have leaked with the active key, and nothing is gained by it
	}
	if err := after.signs(active, now); err != nil {
		return State{}, err
	}
	if _, ok := after.Next(); ok {
		next = nil
	}
	return after.withNext(next, now)
}

// Import replaces the ring, which is zero if there is none, by another copy of it, such as that of another node. It refuses
// a copy whose history does not contain the present ring. What either has revoked, and what revoked has, stays revoked.
func Import(state, copied State, revoked []Removed) (State, error) {
	if state.Generation > 0 {
		if err := follows(&state, copied); err != nil {
			return State{}, err
		}
	}
	after := copied.Clone()
	after.Revoked = Union(Union(state.Revoked, copied.Revoked), revoked)
	if after.Version() == state.Version() && len(after.Revoked) == len(state.Revoked) {
		return State{}, &Refusal{Reason: "the ring is the same already", Remedy: "nothing to do", Done: true}
	}
	return after, nil
}

// AcceptOlder makes an older ring the newest one. generation, history and active are those of the ring that
// is given up: what only that one had is lost. Its active key signs if it is next here. If revocations leave no key
// that signs, fresh does, unless it is nil.
func AcceptOlder(state State, generation int64, history []string, active string, fresh *Key, now time.Time) (State, error) {
	after := state.next()
	after.Generation = max(state.Generation, generation) + 1
	after.dropRevoked()
	if next, ok := after.Next(); ok && next.ID == active {
		after.promote(next.ID, stamp(now))
	}
	return after.supersede(history, fresh, now)
}

// supersede ends a transition with a ring that is newer than one with another history, too. It drops revoked keys. If they leave
// none that signs, fresh does, unless it is nil.
func (s State) supersede(history []string, fresh *Key, now time.Time) (State, error) {
	s.dropRevoked()
	if err := s.signs(fresh, now); err != nil {
		return State{}, err
	}
	for _, version := range history {
		if !s.Knows(version) {
			s.History = append(s.History, version)
		}
	}
	return s.withNext(nil, now)
}

// Prune removes a retired key from the ring. It refuses while tokens may need the key.
func Prune(state State, id string, usage Usage, now time.Time, policy Policy) (State, error) {
	key, ok := state.Key(id)
	if !ok || key.Role != signing.Retired {
		return State{}, Refuse("the ring has no retired key "+id, "rotate to another key first")
	}
	if err := needed(key, usage, now, policy); err != nil {
		return State{}, err
	}
	if held := key.RetiredAt.Add(HoldDown); id == state.Previous && now.Before(held) {
		return State{}, until(held, keyText(key)+" is what keys rollback goes back to")
	}
	after := state.next()
	after.remove(key, Pruned)
	return after.sealed()
}

// needed returns a Refusal while tokens may need a retired key.
func needed(key Key, usage Usage, now time.Time, policy Policy) error {
	switch {
	case usage.Signer != "":
		return &Refusal{
			Reason: fmt.Sprintf("%s still signs with %s", usage.Signer, keyText(key)),
			Remedy: "bring the ring there, or its keys (keys export --kubeadm) and restart it; the life of its tokens counts from then",
			Later:  true,
		}
	case usage.Secrets != 0:
		return &Refusal{
			Reason: fmt.Sprintf("%d token Secrets bear %s", usage.Secrets, keyText(key)),
			Remedy: "wait until they are replaced, or delete those that nobody uses", Later: true,
		}
	}
	unused := key.RetiredAt
	if usage.Since.After(unused) {
		unused = usage.Since
	}
	if lives := unused.Add(policy.TokenLifetime + ClockSkew); now.Before(lives) {
		return until(lives, fmt.Sprintf("bound tokens signed with %s may live for %s after %s, since when nothing was seen to sign with it",
			keyText(key), policy.TokenLifetime, clockTime(unused)))
	}
	return nil
}

func until(at time.Time, reason string) error {
	return &Refusal{Reason: reason, Remedy: "wait until " + clockTime(at), Until: at}
}

// Join ends a fork. The ring keeps its keys and gets those that only the other one has as retired keys,
// with their public halves. Its history contains both rings, so that it is newer than either. What
// either side has revoked stays revoked; what was pruned or withdrawn on one side alone comes back.
//
// If revocations leave no key that signs, active does, unless it is nil. Rings that have nothing in common are refused.
func Join(state, other State, active *Key, now time.Time) (State, error) {
	if state.Knows(other.Version()) || other.Knows(state.Version()) {
		return State{}, Refuse("the two rings are not forked: one has come from the other", "import the newer one")
	}
	now = stamp(now)
	after := state.next()
	after.Generation = max(state.Generation, other.Generation) + 1
	after.Revoked = Union(state.Revoked, other.Revoked)
	alike := slices.ContainsFunc(other.History, state.Knows)
	for _, key := range other.Keys {
		i := after.index(key.ID)
		alike = alike || i >= 0
		gone := slices.IndexFunc(after.Removed, func(gone Removed) bool { return gone.Is(key.PublicKey) })
		switch {
		case gone >= 0:
			after.Removed = slices.Delete(after.Removed, gone, gone+1)
		case i >= 0 && after.Keys[i].Role == signing.Retired:
			after.Keys[i].RetiredAt = now // it may sign there
		}
		if i < 0 {
			key.Private, key.PublicOnly, key.Role, key.RetiredAt = nil, true, signing.Retired, now
			after.Keys = append(after.Keys, key)
		}
	}
	if !alike {
		return State{}, Refuse("the two rings have no version and no key in common: one is of another cluster, whose tokens would "+
			"be valid here",
			"bring the ring of this cluster to the host that has the other one")
	}
	for _, gone := range other.Removed {
		_, kept := after.Key(gone.ID)
		if !kept && !slices.ContainsFunc(after.Removed, func(ours Removed) bool { return ours.ID == gone.ID }) {
			after.Removed = append(after.Removed, gone)
		}
	}
	return after.supersede(other.History, active, now)
}

// Refuse is the error for a step that waiting does not help.
func Refuse(reason, remedy string) error { return &Refusal{Reason: reason, Remedy: remedy} }

// IsDone reports whether err refuses a transition that was made before.
func IsDone(err error) bool {
	refusal, ok := errors.AsType[*Refusal](err)
	return ok && refusal.Done
}

// clockTime formats a time for the text of a refusal.
func clockTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func keyText(key Key) string { return fmt.Sprintf("key %s (%s)", key.ID, key.Algorithm) }

// The functions below change s in place: the caller has not returned s yet.

// promote makes a key of the ring active and retires the active one, if there is one.
func (s *State) promote(id string, now time.Time) {
	if i := slices.IndexFunc(s.Keys, func(key Key) bool { return key.Role == signing.Active }); i >= 0 {
		key := &s.Keys[i]
		key.Role, key.RetiredAt = signing.Retired, now
		if now.Before(key.ActivatedAt) { // the clock was set back, and its tokens still exist
			key.RetiredAt = key.ActivatedAt
		}
		s.Previous = key.ID
	}
	key := &s.Keys[s.index(id)]
	key.Role, key.ActivatedAt, key.RetiredAt, key.ByRevocation = signing.Active, now, time.Time{}, false
}

// signs makes the next key active, or else active, if the active one was revoked.
func (s *State) signs(active *Key, now time.Time) error {
	if _, signs := s.first(signing.Active); signs {
		return nil
	}
	successor, ok := s.Next()
	if !ok && active == nil {
		return Refuse("no key would be left that signs, and the next one must be in another process as the active one is",
			"first keys next --key=kep740:NAME with another name or, for a key in the file, keys next --algorithm=KIND")
	}
	if !ok {
		successor = *active
		if err := s.admit(&successor, now); err != nil {
			return err
		}
	}
	s.promote(successor.ID, stamp(now))
	s.Keys[s.index(successor.ID)].ByRevocation = true
	return nil
}

// remove records that a key has left the ring.
func (s *State) remove(key Key, why Reason) {
	i := s.index(key.ID)
	s.Keys = slices.Delete(s.Keys, i, i+1)
	s.Removed = append(s.Removed, Removed{ID: key.ID, Digest: key.Digest(), Reason: why})
	if s.Previous == key.ID {
		s.Previous = ""
	}
}

// dropRevoked removes the revoked keys, and reports whether there were any.
func (s *State) dropRevoked() bool {
	before := len(s.Keys)
	s.Keys = slices.DeleteFunc(s.Keys, func(key Key) bool { return s.Revoked.Has(key.PublicKey) })
	if s.index(s.Previous) < 0 {
		s.Previous = ""
	}
	return len(s.Keys) < before
}

// withNext ends a transition: it drops the private halves that nothing needs any more, adds a next key
// unless that is nil, and seals the state.
func (s State) withNext(key *Key, now time.Time) (State, error) {
	s.shed()
	if key != nil {
		if err := s.admit(key, now); err != nil {
			return State{}, err
		}
	}
	return s.sealed()
}

// shed drops the private halves of retired keys: a file that leaks must not give away more than it needs.
func (s *State) shed() {
	for i := range s.Keys {
		if key := &s.Keys[i]; key.Role == signing.Retired && key.ID != s.Previous {
			key.Private, key.PublicOnly = nil, true
		}
	}
}

// admit adds a next key that is new to the ring.
func (s *State) admit(key *Key, now time.Time) error {
	for _, known := range s.Keys {
		switch {
		case known.ID == key.ID || known.Digest() == key.Digest():
			return Refuse(fmt.Sprintf("%s is in the ring already, as %s", keyText(*key), known.Role), "name a new key")
		case key.Signer != "" && known.Signer == key.Signer && !known.PublicOnly:
			return Refuse(fmt.Sprintf("%s is the signer of %s, which is %s", key.Signer, keyText(known), known.Role),
				"give the new key a name and a socket of its own")
		}
	}
	for _, gone := range slices.Concat(s.Removed, s.Revoked) {
		if gone.Is(key.PublicKey) {
			return Refuse(fmt.Sprintf("%s was %s before, and copies of the ring remember that", keyText(*key), gone.Reason),
				"name a new key")
		}
	}
	next := *key
	next.Role, next.PublishedAt = signing.Next, stamp(now)
	next.ActivatedAt, next.RetiredAt = time.Time{}, time.Time{}
	s.Keys = append(s.Keys, next)
	return nil
}
