// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	// ByRevocation means that it signs because the key before it was revoked.
	ByRevocation bool `json:"byRevocation,omitempty"`
	// RetiredAt is when another key became active. Some process may have signed with it for longer.
	RetiredAt time.Time `json:"retiredAt,omitzero"`
}

// KeyOf returns the entry of a key that is in no ring yet.
func KeyOf(key *signing.PrivateKey) Key { return Key{Key: key.As(signing.Next), Signer: key.Signer()} }

// Kind is what a key is succeeded by if the user names nothing else: a kind of key in the file, or
// "" for a key of another process.
func (k Key) Kind() string {
	if k.Signer != "" {
		return ""
	}
	return signing.KindOf(k.PublicKey)
}

// Settled is how long a key may be without what every key gets: a place in each copy of the ring, and in each key set.
const Settled = 24 * time.Hour

// Arrives reports whether a next key is so new that a kube-apiserver may not have it yet.
func (k Key) Arrives(now time.Time) bool {
	return k.Role != signing.Active && k.Role != signing.Retired && now.Sub(k.PublishedAt) <= Settled
}

// Reason is why a key has left the ring.
type Reason string

const (
	// Pruned means that no token needed the key any more.
	Pruned Reason = "pruned"
	// Withdrawn means that the key has never signed here.
	Withdrawn Reason = "withdrawn"
	// Revoked means that nothing may verify with the key, wherever it comes from.
	Revoked Reason = "revoked"
)

// Removed records a key that has left the ring, or that was revoked. The record is never removed.
type Removed struct {
	ID string `json:"id"`
	// Digest is that of the public half, because the same key may come back under another ID.
	Digest string `json:"digest"`
	Reason Reason `json:"reason"`
}

// Revokes reports whether it is the record of a key that is revoked, as this program writes it.
func (r Removed) Revokes() bool {
	return signing.CheckKeyID(r.ID) == nil && r.Digest != "" && r.Reason == Revoked
}

// Is reports whether the record is of a key.
func (r Removed) Is(key signing.PublicKey) bool { return r.ID == key.ID || r.Digest == key.Digest() }

// Revocations are the keys that nothing may verify with.
type Revocations []Removed

// Has reports whether a key is revoked, under any ID.
func (r Revocations) Has(key signing.PublicKey) bool {
	return slices.ContainsFunc(r, func(gone Removed) bool { return gone.Is(key) })
}

// State is the content of a ring file. It is a value: no function of this package changes one that it
// is given.
type State struct { //nolint:recvcheck // what changes it has a pointer
	SchemaVersion int `json:"schemaVersion"`
	// Generation grows with every change. A copy with a lower one is stale.
	Generation int64 `json:"generation"`
	// Keys are in the order in which they joined the ring.
	Keys []Key `json:"keys"`
	// Previous is the ID of the retired key that Rollback goes back to, "" if there is none. The ring
	// has the private half of no other retired key.
	Previous string `json:"previous,omitempty"`
	// Removed are the keys that were pruned or withdrawn.
	Removed []Removed `json:"removed,omitempty"`
	// Revoked are the keys that nothing may verify with. The set only grows, in every generation, and
	// counts for Keys too: one may have been revoked on another host.
	Revoked Revocations `json:"revoked,omitempty"`
	// History has the last versions of the ring, at most MaxHistory, its own at the end. A copy whose version is
	// not among them was changed somewhere else.
	History []string `json:"history"`
}

// Ring returns the keys of Effective for signing and verifying. No removed key comes back by a verification
// file.
func (s State) Ring() *signing.Ring { return s.Effective().ring() }

func (s State) ring() *signing.Ring {
	var keys []signing.Key
	others := slices.DeleteFunc(slices.Clone(s.Keys), func(key Key) bool { return key.Role == signing.Retired })
	for _, key := range append(others, s.Retired()...) {
		keys = append(keys, key.Key)
	}
	removed := map[string]bool{}
	for _, gone := range slices.Concat(s.Removed, s.Revoked) {
		for _, id := range []string{gone.ID, gone.Digest} {
			removed[id] = removed[id] || gone.Reason == Revoked
		}
	}
	return signing.NewRing(keys...).Without(removed)
}

// Desired is what the rings of other hosts decide about this one.
type Desired struct {
	// Active is the active key of the newest ring, "" if that is this one.
	Active string
	// Revoked are the keys that any host has revoked.
	Revoked Revocations
}

// Apply returns the keys of the ring as other rings want them: without revoked ones, and with the next
// key active if it is that in the newest ring. It only promotes and removes, so the worst that a forged
// Desired does is use a key too early, or none.
func (s State) Apply(desired Desired) *signing.Ring {
	applied := s.Clone()
	applied.Revoked = Union(s.Revoked, desired.Revoked)
	applied = applied.Effective()
	if next, ok := applied.Next(); ok && next.ID == desired.Active {
		applied.promote(next.ID, next.PublishedAt)
	}
	return applied.ring()
}

// Effective returns the ring without the revoked keys. If the active one is among them, the next key is
// active. It may have no active key, and is for reading only.
func (s State) Effective() State {
	s = s.Clone()
	s.dropRevoked()
	if next, ok := s.Next(); ok && s.Active().ID == "" {
		s.promote(next.ID, next.PublishedAt)
		s.Keys[s.index(next.ID)].ByRevocation = true
	}
	return s
}

// Union returns the revocations of two sets.
func Union(a, b Revocations) Revocations {
	union := slices.Clone(a)
	for _, gone := range b {
		if !slices.ContainsFunc(union, func(known Removed) bool { return known.ID == gone.ID && known.Digest == gone.Digest }) {
			union = append(union, gone)
		}
	}
	return union
}

// Foreign reports whether the key has the ID that its signer has chosen, which only this ring knows: in
// a key file kube-apiserver finds the key by its derived ID.
func (k Key) Foreign() bool { return k.Signer != "" && !k.PublicKey.Derived() }

// Key finds a key by its ID.
func (s State) Key(id string) (Key, bool) { return s.find(func(key Key) bool { return key.ID == id }) }

// Active returns the key that signs, unless it is revoked. A valid state has one.
func (s State) Active() Key {
	key, _ := s.first(signing.Active)
	return key
}

// Next returns the key that is published and does not sign yet, if there is one.
func (s State) Next() (Key, bool) { return s.first(signing.Next) }

// Retired returns the keys that only verify, the one that was retired last first.
func (s State) Retired() []Key {
	retired := slices.DeleteFunc(slices.Clone(s.Keys), func(key Key) bool { return key.Role != signing.Retired })
	slices.SortStableFunc(retired, func(a, b Key) int { return b.RetiredAt.Compare(a.RetiredAt) })
	return retired
}

// Clone returns a state that shares nothing with this one.
func (s State) Clone() State {
	s.Keys = slices.Clone(s.Keys)
	s.Removed, s.Revoked, s.History = slices.Clone(s.Removed), slices.Clone(s.Revoked), slices.Clone(s.History)
	return s
}

func (s State) first(role signing.Role) (Key, bool) {
	return s.find(func(key Key) bool { return key.Role == role })
}

func (s State) find(wanted func(Key) bool) (Key, bool) {
	i := slices.IndexFunc(s.Keys, wanted)
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

// Version returns a hash of the public content of the ring, but for revocations, and of its history. No other
// ring has it.
func (s State) Version() string {
	if len(s.History) == 0 {
		return ""
	}
	return s.History[len(s.History)-1]
}

// Knows reports whether the version is that of the ring or in its history.
func (s State) Knows(version string) bool { return slices.Contains(s.History, version) }

// MaxHistory is how many versions a ring remembers: three a day for a year. Each host publishes them.
const MaxHistory = 1000

// sealed returns the state with its version at the end of the history, and the error of Validate.
func (s State) sealed() (State, error) {
	s.History = s.History[max(0, len(s.History)+1-MaxHistory):]
	s.History = append(s.History, s.version())
	return s, s.Validate()
}

// version computes the next entry of the history. Its input may be published: it has no private byte
// and nothing that only this host knows.
func (s State) version() string {
	lines := slices.Clone(s.History)
	for _, key := range s.Keys {
		lines = append(lines, strings.Join([]string{key.ID, string(key.Role), clockTime(key.PublishedAt),
			clockTime(key.ActivatedAt), clockTime(key.RetiredAt), strconv.FormatBool(key.PublicOnly)}, " "))
	}
	lines = append(lines, "previous "+s.Previous)
	for _, gone := range s.Removed {
		lines = append(lines, strings.Join([]string{string(gone.Reason), gone.ID, gone.Digest}, " "))
	}
	digest := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return fmt.Sprintf("%d:%s", s.Generation, base64.RawURLEncoding.EncodeToString(digest[:16]))
}

// stamp returns a time as it is stored: in UTC, and rounded up to the second, so that no wait ends
// early.
func stamp(at time.Time) time.Time { return at.UTC().Add(time.Second - 1).Truncate(time.Second) }
