// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"fmt"
	"slices"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// maxGap is the longest time without an answer that does not end an unbroken run: in a longer one a
// cache may have read something else.
const maxGap = 2 * time.Minute

// watch is what was seen of one issuer. The zero watch has seen nothing.
type watch struct {
	keys []signing.PublicKey // of the latest answer
	at   time.Time           // when that was
	err  error               // of the latest request
	// since is when the unbroken run of answers that have the key next began, zero if the latest has
	// not.
	next  string
	since time.Time
	ages  []age
}

// age is one that an answer had.
type age struct {
	of time.Duration
	// expires is the time until which a cache may use a copy of the latest such answer.
	expires time.Time
}

// see records an answer or its error. next is zero if no rotation is in progress.
func (w *watch) see(at time.Time, next signing.PublicKey, answer Answer, err error) {
	if w.err = err; err != nil {
		return
	}
	result, _ := Find(next, answer.Keys)
	switch unbroken := w.next == next.ID && at.Sub(w.at) <= maxGap; {
	case result != Same:
		w.since = time.Time{}
	case w.since.IsZero() || !unbroken:
		w.since = at
	}
	w.next, w.at, w.keys = next.ID, at, answer.Keys
	w.remember(age{answer.CacheAge, at.Add(answer.CacheAge)})
}

// remember adds an age and drops those that are shorter than another one and expire before it.
func (w *watch) remember(seen age) {
	if slices.ContainsFunc(w.ages, func(known age) bool { return known.of >= seen.of && !known.expires.Before(seen.expires) }) {
		return
	}
	w.ages = slices.DeleteFunc(w.ages, func(known age) bool { return known.of <= seen.of && !known.expires.After(seen.expires) })
	w.ages = append(w.ages, seen)
}

// cacheAge returns the greatest age of the answers of which copies may be in use after a time.
func (w *watch) cacheAge(after time.Time) (greatest time.Duration) {
	for _, seen := range w.ages {
		if seen.expires.After(after) {
			greatest = max(greatest, seen.of)
		}
	}
	return greatest
}

// problem returns what is wrong with the latest answer, "" if it has every key of the ring but except.
func (w *watch) problem(state ring.State, except string) string {
	if w.err != nil {
		return w.err.Error()
	}
	for _, key := range state.Keys {
		if key.ID == except {
			continue
		}
		if result, detail := Find(key.PublicKey, w.keys); result != Same {
			return fmt.Sprintf("%s key %s: %s", key.Role, key.ID, detail)
		}
	}
	return ""
}
