// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/tokensecrets"
)

// What this process has done and its watches have not shown yet. All of it may be
// lost at any time: forgetting costs a request that the apiserver refuses. None of it
// is of use once somebody else has led.

// memory is what is remembered of one version of each object. It may be used by several
// goroutines; its zero value is empty.
type memory[T any] struct {
	mu  sync.Mutex
	all map[cache.ObjectName]remembered[T]
}

type remembered[T any] struct {
	version string
	what    T
}

func (m *memory[T]) set(name cache.ObjectName, version string, what T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[cache.ObjectName]remembered[T]{}
	}
	m.all[name] = remembered[T]{version, what}
}

// get forgets what is remembered of another version.
func (m *memory[T]) get(name cache.ObjectName, version string) (what T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.all[name]
	if ok && found.version != version {
		delete(m.all, name)
		return what, false
	}
	return found.what, ok
}

func (m *memory[T]) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.all)
}

func (m *memory[T]) forget(name cache.ObjectName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, name)
}

// versions remembers from which version of a Secret a write was made, so that the
// same version, which is outdated since, does not cause a second one.
type versions struct{ memory[struct{}] }

func (v *versions) wrote(secret *tokensecrets.TokenSecret) {
	v.set(nameOf(secret), version(secret), struct{}{})
}

// outdated tells whether secret is a version that a write was made from.
func (v *versions) outdated(secret *tokensecrets.TokenSecret) bool {
	_, wrote := v.get(nameOf(secret), version(secret))
	return wrote
}

func version(secret *tokensecrets.TokenSecret) string {
	return string(secret.UID) + "/" + secret.ResourceVersion
}

// sightings remembers when this process first saw each version of something that waits: of
// a Secret without an account, and of an account, whose versions are its UIDs, with a
// Secret that is to be emptied. One goroutine at a time may ask about an object, as with
// the workers of a loop.
type sightings struct{ memory[time.Time] }

// since is when this version was first seen, and whether that is now.
func (s *sightings) since(name cache.ObjectName, version string, now time.Time) (first time.Time, isNew bool) {
	if seen, ok := s.get(name, version); ok {
		return seen, false
	}
	s.set(name, version, now)
	return now, true
}

// creation is the Secret that was just created for an account. It is remembered until the
// caches show it and the reference to it.
type creation struct {
	secret     string
	referenced bool
	at         time.Time
}
