// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"sa-controller-manager/signing"
)

// Version returns a hash of the public content of the ring and of its history. No other ring has it.
func (s State) Version() string {
	if len(s.History) == 0 {
		return ""
	}
	return s.History[len(s.History)-1]
}

// Knows reports whether the version is that of the ring or in its history.
func (s State) Knows(version string) bool { return slices.Contains(s.History, version) }

// sealed returns the state with its version at the end of the history, and the error of Validate.
func (s State) sealed() (State, error) {
	s.History = append(s.History, s.version())
	return s, s.Validate()
}

// version computes the next entry of the history. Its input may be published: it has no private byte
// and nothing that only this host knows.
func (s State) version() string {
	lines := slices.Clone(s.History)
	for _, key := range s.Keys {
		lines = append(lines, strings.Join([]string{key.ID, string(key.Role), clockTime(key.PublishedAt),
			clockTime(key.ActivatedAt), clockTime(key.RetiredAt), clockTime(key.HoldUntil)}, " "))
	}
	if r := s.Rotation; r != nil {
		lines = append(lines, strings.Join([]string{string(r.Phase), r.From, r.To, clockTime(r.StartedAt),
			clockTime(r.ActivateNotBefore), clockTime(r.ActivatedAt), clockTime(r.EndedAt)}, " "))
	}
	for _, place := range s.Manual {
		lines = append(lines, "manual "+place.Name+" "+strings.Join(place.Confirmed, " "))
	}
	if !s.PausedAt.IsZero() {
		lines = append(lines, "paused "+clockTime(s.PausedAt))
	}
	lines = append(lines, "pruned", strings.Join(s.Pruned, " "), "withdrawn", strings.Join(s.Withdrawn, " "))
	digest := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return fmt.Sprintf("%d:%s", s.Generation, base64.RawURLEncoding.EncodeToString(digest[:16]))
}

// validateHistory returns an error for a ring that was not changed by a transition.
func (s State) validateHistory() error {
	if s.Version() == "" {
		return errors.New("history is missing: was the ring edited by hand?")
	}
	before := s
	before.History = s.History[:len(s.History)-1]
	if want := before.version(); want != s.Version() {
		return fmt.Errorf("history ends with version %q and the ring is version %q: was it edited by hand?", s.Version(), want)
	}
	return nil
}

// Join ends a fork. The ring keeps its keys and gets those that only the other one has as retired keys,
// with their public halves. Its history contains both rings, so that it is newer than either.
func Join(state, other State, now time.Time, policy Policy) (State, error) {
	if state.Knows(other.Version()) || other.Knows(state.Version()) {
		return State{}, refuse("the two rings are not forked: one has come from the other", "import the newer one")
	}
	if active := other.Active().ID; slices.Contains(state.Pruned, active) {
		return State{}, refuse(fmt.Sprintf("key %s signs there and was pruned here", active), "rotate to another key there first")
	}
	now = stamp(now)
	next := state.next()
	next.Generation = max(state.Generation, other.Generation) + 1
	for _, key := range other.Keys {
		if known, ok := next.Key(key.ID); ok {
			if known.Role == signing.Retired {
				retire(next, key.ID, now, policy) // it may sign there
			}
			continue
		}
		if slices.Contains(next.Pruned, key.ID) {
			continue
		}
		key.Private, key.PublicOnly, key.Role = nil, true, signing.Retired
		key.RetiredAt, key.HoldUntil = now, stamp(now.Add(policy.HoldDown))
		next.Keys = append(next.Keys, key)
	}
	next.Pruned = missing(append(next.Pruned, other.Pruned...), next)
	next.Withdrawn = missing(append(next.Withdrawn, other.Withdrawn...), next)
	for _, place := range other.Clone().Manual {
		if next.manual(place.Name) < 0 {
			next.Manual = append(next.Manual, place)
		}
	}
	for _, version := range other.History {
		if !next.Knows(version) {
			next.History = append(next.History, version)
		}
	}
	return next.sealed()
}

// missing returns the IDs of keys that are not in the ring, each once.
func missing(ids []string, ring State) []string {
	var gone []string
	for _, id := range ids {
		if ring.index(id) < 0 && !slices.Contains(gone, id) {
			gone = append(gone, id)
		}
	}
	return gone
}
