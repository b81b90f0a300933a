// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"sync"
	"sync/atomic"
)

// Source is the current bundle, and the functions to call when it changes.
type Source struct {
	current atomic.Pointer[Bundle]
	mu      sync.Mutex
	changed []func()
}

// NewSource starts with bundle, which is nil when there is no root CA to publish.
func NewSource(bundle *Bundle) *Source {
	s := &Source{}
	s.current.Store(bundle)
	return s
}

// Current is the bundle to use now; nil when there is none.
func (s *Source) Current() *Bundle { return s.current.Load() }

// Set replaces the bundle and then calls what OnChange was given.
func (s *Source) Set(bundle *Bundle) {
	s.current.Store(bundle)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, notify := range s.changed {
		notify()
	}
}

// OnChange has notify called after every Set, on the caller's goroutine of Set.
// It must not block.
func (s *Source) OnChange(notify func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = append(s.changed, notify)
}
