// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"crypto/sha256"
	"sync"
	"time"

	"sa-controller-manager/controllers/informers"
)

const (
	// freeRepairs in a row are made at once: a person tries something out. The delay of
	// the next one is contestedDelay and doubles up to maxRepairDelay.
	freeRepairs    = 3
	contestedDelay = time.Second
	maxRepairDelay = 5 * time.Minute

	// peace is how long nobody must have touched the ConfigMap for repairs to be made
	// at once again.
	peace = 2 * maxRepairDelay

	// watchDelay is how long the watch may take to show what was created. It is waited
	// for once: what is created and deleted at once may never be shown.
	watchDelay = 2 * time.Second

	// absent is the version of what does not exist.
	absent = "absent"
)

// memory is what this process has written to each namespace and how often somebody
// undid that. All of it may be lost at any time: forgetting costs a request too many.
type memory struct {
	mu         sync.Mutex
	namespaces map[string]*record
}

type record struct {
	// good is the hash of what was right when it was seen last; zero before that.
	good [sha256.Size]byte
	// from is the version that the last write was made from, "" if none was made, and
	// at is when.
	from string
	at   time.Time

	// undone counts in a row how often somebody undid our work, and due is when it may
	// be repaired. Until it is, pending, nothing is counted: who changes it all the time
	// does not put the repair off for ever.
	undone  int
	pending bool
	due     time.Time
}

func (m *memory) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.namespaces)
}

// pause is how long not to act, and whether that is because somebody undoes our work.
type pause struct {
	wait      time.Duration
	contested bool
}

// examine remembers what was found and tells how long to wait before acting on it.
func (m *memory) examine(namespace string, owed action, found *informers.RootCA, now time.Time) pause {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.namespaces == nil {
		m.namespaces = map[string]*record{}
	}
	r := m.namespaces[namespace]
	if r == nil {
		r = &record{}
		m.namespaces[namespace] = r
	}
	if owed != create && owed != update {
		if found != nil {
			r.good, r.from, r.pending = found.Hash, "", false
		}
		return pause{}
	}
	if wait := r.outdated(version(found), now); wait > 0 {
		return pause{wait: wait}
	}
	if !r.pending && r.undoneBy(found) {
		r.count(now)
	}
	wait := max(0, r.due.Sub(now))
	return pause{wait: wait, contested: wait > 0}
}

// outdated tells how long to wait for the watch to show the last write.
func (r *record) outdated(seen string, now time.Time) time.Duration {
	if r.from != seen {
		return 0
	}
	return max(0, r.at.Add(watchDelay).Sub(now))
}

// undoneBy tells whether somebody else made found what it is. What we have seen right
// and is to become something else because of a new bundle is not undone.
func (r *record) undoneBy(found *informers.RootCA) bool {
	if r.good == ([sha256.Size]byte{}) {
		return false
	}
	return found == nil || found.Hash != r.good || found.Extra || !found.Described
}

func (r *record) count(now time.Time) {
	if now.Sub(r.due) >= peace {
		r.undone = 0
	}
	r.undone++
	r.pending, r.due = true, now.Add(repairDelay(r.undone))
}

// repairDelay is how long the nth repair in a row is put off.
func repairDelay(n int) time.Duration {
	if n <= freeRepairs {
		return 0
	}
	delay := contestedDelay
	for range n - freeRepairs - 1 {
		if delay = 2 * delay; delay >= maxRepairDelay {
			return maxRepairDelay
		}
	}
	return delay
}

// wrote remembers a write made from the version that was found, nil for none.
func (m *memory) wrote(namespace string, found *informers.RootCA, bundle *Bundle, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.namespaces[namespace]; r != nil {
		r.good, r.from, r.at, r.pending = bundle.hash, version(found), now, false
	}
}

func (m *memory) forget(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.namespaces, namespace)
}

func version(found *informers.RootCA) string {
	if found == nil {
		return absent
	}
	return string(found.UID) + "/" + found.ResourceVersion
}
