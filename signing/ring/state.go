// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"slices"
	"time"

	"sa-controller-manager/signing"
)

// SchemaVersion is the version of the state's encoding that this package reads and writes.
const SchemaVersion = 1

// Key is one key of the ring. Times are in UTC and whole seconds; one that has not come yet is
// zero.
type Key struct {
	// Key has the role next, active or retired. There is exactly one active key. Its JSON form leaves
	// the key itself out, so that no output contains it.
	signing.Key

	// PublicOnly means that the ring has only the public half, so that the key can never sign here.
	PublicOnly bool `json:"publicOnly,omitempty"`
	// Signer is kep740:NAME if another process of this host has the private half.
	Signer string `json:"signer,omitempty"`
	// PublishedAt is when the key joined the ring.
	PublishedAt time.Time `json:"publishedAt,omitzero"`
	// ActivatedAt is when the key last became the active one. It is zero for a key that has never
	// signed here.
	ActivatedAt time.Time `json:"activatedAt,omitzero"`
	// RetiredAt is the latest time at which a token may have been signed with a retired key: when
	// another one became active, later when that rotation was completed, because some process may
	// have followed late, and the last time that a kube-apiserver was found to sign with it
	// nevertheless.
	RetiredAt time.Time `json:"retiredAt,omitzero"`
	// HoldUntil is the end of the hold-down: before it, a retired key is not pruned even if nothing
	// needs it any more.
	HoldUntil time.Time `json:"holdUntil,omitzero"`
}

// KeyOf returns the entry of a key that is in no ring yet.
func KeyOf(key *signing.PrivateKey) Key {
	return Key{Key: key.As(signing.Next), Signer: key.Signer()}
}

// Phase is how far a rotation has come.
type Phase string

const (
	// Idle is the phase of a ring that was never rotated.
	Idle Phase = ""
	// Published means that the next key is published and does not sign.
	Published Phase = "published"
	// Activated means that the new key signs and that Rollback can still undo that.
	Activated Phase = "activated"
	// Completed means that the rotation has ended with the new key.
	Completed Phase = "completed"
	// RolledBack means that the rotation has ended with the previous key.
	RolledBack Phase = "rolled-back"
)

// Rotation is the latest rotation, in progress or ended. There is never more than one in progress.
type Rotation struct {
	Phase Phase `json:"phase"`
	// From and To are the key IDs of the previous and of the new key. A key that has been pruned
	// since is still named.
	From string `json:"from"`
	To   string `json:"to"`
	// StartedAt is when To was published.
	StartedAt time.Time `json:"startedAt"`
	// ActivateNotBefore is the end of the wait that began with StartedAt.
	ActivateNotBefore time.Time `json:"activateNotBefore"`
	// ActivatedAt is when To began to sign, zero if it never did.
	ActivatedAt time.Time `json:"activatedAt,omitzero"`
	// EndedAt is when the rotation was completed or rolled back.
	EndedAt time.Time `json:"endedAt,omitzero"`
}

// State is the content of a ring file. It is a value: no function of this package changes one that it
// is given.
type State struct {
	SchemaVersion int `json:"schemaVersion"`
	// Generation grows with every change. A copy with a lower one is stale.
	Generation int64 `json:"generation"`
	// Keys are in the order in which they joined the ring.
	Keys     []Key     `json:"keys"`
	Rotation *Rotation `json:"rotation,omitempty"`
	// PausedAt is since when rotation by policy is paused, zero if it is not.
	PausedAt time.Time `json:"pausedAt,omitzero"`
	// Pruned are the IDs of keys that have left the ring and may have signed, and Withdrawn those
	// of keys that never did. They are never removed.
	Pruned    []string `json:"pruned,omitempty"`
	Withdrawn []string `json:"withdrawn,omitempty"`
	// Manual are the places that a person publishes the keys at.
	Manual []Manual `json:"publishedManually,omitempty"`
	// History has all versions of the ring, its own at the end. A copy whose version is not among
	// them was changed somewhere else.
	History []string `json:"history"`
}

// Ring returns the keys for signing and verifying.
func (s State) Ring() *signing.Ring {
	keys := []signing.Key{s.Active().Key}
	if next, ok := s.Next(); ok {
		keys = append(keys, next.Key)
	}
	for _, key := range s.Retired() {
		keys = append(keys, key.PublicKey.As(signing.Retired))
	}
	return signing.NewRing(keys...)
}

// Phase returns the phase of the latest rotation.
func (s State) Phase() Phase {
	if s.Rotation == nil {
		return Idle
	}
	return s.Rotation.Phase
}

// InProgress reports whether a rotation has begun and not ended.
func (s State) InProgress() bool { return s.Phase() == Published || s.Phase() == Activated }

// Foreign reports whether the key has the ID that its signer has chosen, which only this ring knows: in
// a key file kube-apiserver finds the key by its derived ID.
func (k Key) Foreign() bool { return k.Signer != "" && !k.PublicKey.Derived() }

// Key finds a key by its ID.
func (s State) Key(id string) (Key, bool) {
	i := s.index(id)
	if i < 0 {
		return Key{}, false
	}
	return s.Keys[i], true
}

// Active returns the key that signs. A valid state has one.
func (s State) Active() Key {
	key, _ := s.first(signing.Active)
	return key
}

// Next returns the key that is published and does not sign yet, if there is one.
func (s State) Next() (Key, bool) { return s.first(signing.Next) }

// Retired returns the keys that only verify, the one that was retired last first.
func (s State) Retired() []Key {
	var retired []Key
	for _, key := range s.Keys {
		if key.Role == signing.Retired {
			retired = append(retired, key)
		}
	}
	slices.SortStableFunc(retired, func(a, b Key) int { return b.RetiredAt.Compare(a.RetiredAt) })
	return retired
}

// Clone returns a state that shares nothing with this one.
func (s State) Clone() State {
	s.Keys = slices.Clone(s.Keys)
	s.Pruned, s.Withdrawn, s.History = slices.Clone(s.Pruned), slices.Clone(s.Withdrawn), slices.Clone(s.History)
	s.Manual = slices.Clone(s.Manual)
	for i := range s.Manual {
		s.Manual[i].Confirmed = slices.Clone(s.Manual[i].Confirmed)
	}
	if s.Rotation != nil {
		rotation := *s.Rotation
		s.Rotation = &rotation
	}
	return s
}

func (s State) first(role signing.Role) (Key, bool) {
	i := slices.IndexFunc(s.Keys, func(key Key) bool { return key.Role == role })
	if i < 0 {
		return Key{}, false
	}
	return s.Keys[i], true
}

func (s State) index(id string) int {
	return slices.IndexFunc(s.Keys, func(key Key) bool { return key.ID == id })
}

// next returns a copy of the state with the next generation.
func (s State) next() State {
	next := s.Clone()
	next.Generation++
	return next
}

// stamp returns a time as it is stored: in UTC, and rounded up to the second, so that no wait ends
// early.
func stamp(at time.Time) time.Time {
	at = at.UTC().Round(0)
	if whole := at.Truncate(time.Second); !whole.Equal(at) {
		return whole.Add(time.Second)
	}
	return at
}
