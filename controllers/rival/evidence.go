// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// evidence counts signs. What is older than quiet is forgotten.
type evidence struct {
	mu    sync.Mutex
	since time.Time // when this process began to look, zero while it does not
	signs map[sign]*count
}

type count struct {
	n    int
	last time.Time
}

// begin starts anew, and end stops.
func (e *evidence) begin(now time.Time) { e.reset(now) }
func (e *evidence) end()                { e.reset(time.Time{}) }

func (e *evidence) reset(since time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.since, e.signs = since, map[sign]*count{}
}

// note counts a sign. It tells whether it is believed, and whether that is new.
func (e *evidence) note(s sign, now time.Time) (believed, isNew bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.since.IsZero() || now.Sub(e.since) < settling {
		return false, false
	}
	e.forget(now)
	seen := e.signs[s]
	if seen == nil {
		if s.needed() > 1 && len(e.signs) >= maxSigns {
			return false, false
		}
		seen = &count{}
		e.signs[s] = seen
	}
	seen.n++
	seen.last = now
	return seen.n >= s.needed(), seen.n == s.needed()
}

func (e *evidence) forget(now time.Time) {
	maps.DeleteFunc(e.signs, func(_ sign, c *count) bool { return now.Sub(c.last) >= quiet })
}

// status says what is believed, "" for nothing. It names no Secret: health paths need no
// permission.
func (e *evidence) status(now time.Time) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget(now)
	believed := map[sign]count{}
	for s, seen := range e.signs {
		if seen.n < s.needed() {
			continue
		}
		s.secret = cache.ObjectName{}
		all := believed[s]
		all.n += seen.n
		if seen.last.After(all.last) {
			all.last = seen.last
		}
		believed[s] = all
	}
	var texts []string
	for _, s := range slices.SortedFunc(maps.Keys(believed), compare) {
		c := believed[s]
		texts = append(texts, fmt.Sprintf("%s (%d times, the last one %v ago)", s.says(), c.n, now.Sub(c.last).Round(time.Second)))
	}
	if more := len(texts) - shownSigns; more > 0 {
		texts = append(texts[:shownSigns], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// compare puts first what is known to be a token controller.
func compare(a, b sign) int {
	return cmp.Or(cmp.Compare(a.needed(), b.needed()), cmp.Compare(a.manager, b.manager), cmp.Compare(a.act, b.act))
}

// says is what the sign means. It is the same text each time, so that its Event is
// not repeated.
func (s sign) says() string {
	if s.act == filled {
		return fmt.Sprintf("%.*q fills token Secrets beside this process", shownManager, s.manager)
	}
	return fmt.Sprintf("%.*q puts another root CA into token Secrets whenever this process has written its own", shownManager, s.manager)
}
