// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
			clockTime(key.ActivatedAt), clockTime(key.RetiredAt), strconv.FormatBool(key.PublicOnly)}, " "))
	}
	lines = append(lines, "previous "+s.Previous)
	for _, gone := range s.Removed {
		lines = append(lines, strings.Join([]string{string(gone.Reason), gone.ID, gone.Digest}, " "))
	}
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
// with their public halves. Its history contains both rings, so that it is newer than either. What
// either side has revoked stays revoked; what was pruned or withdrawn on one side alone comes back.
func Join(state, other State, now time.Time) (State, error) {
	if state.Knows(other.Version()) || other.Knows(state.Version()) {
		return State{}, refuse("the two rings are not forked: one has come from the other", "import the newer one")
	}
	now = stamp(now)
	after := state.next()
	after.Generation = max(state.Generation, other.Generation) + 1
	for _, key := range other.Keys {
		i := after.index(key.ID)
		gone := slices.IndexFunc(after.Removed, func(gone Removed) bool { return gone.Is(key.PublicKey) })
		switch {
		case gone >= 0 && after.Removed[gone].Reason == Revoked:
			continue
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
	for _, gone := range other.Removed {
		present, kept := after.Key(gone.ID)
		known := slices.IndexFunc(after.Removed, func(ours Removed) bool { return ours.ID == gone.ID })
		switch {
		case gone.Reason == Revoked && kept:
			after.remove(present, Revoked)
		case known >= 0 && gone.Reason == Revoked:
			after.Removed[known].Reason = Revoked
		case known < 0 && !kept:
			after.Removed = append(after.Removed, gone)
		}
	}
	if _, signs := after.first(signing.Active); !signs {
		next, ok := after.Next()
		if !ok {
			return State{}, refuse("the key that signs here was revoked there", "join the rings there")
		}
		after.promote(next.ID, now)
	}
	for _, version := range other.History {
		if !after.Knows(version) {
			after.History = append(after.History, version)
		}
	}
	return after.withNext(nil, now)
}
