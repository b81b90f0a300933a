// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/tokensecrets"
)

// Expectations: writes of this process that its watches have not shown yet. They may be lost at any
// time, at the cost of a request that kube-apiserver refuses, and are useless once another
// process has led.

// byVersion keeps one T for one version of each object. It is safe for concurrent use; its zero
// value is empty.
type byVersion[T any] struct {
	mu  sync.Mutex
	all map[cache.ObjectName]versioned[T]
}

type versioned[T any] struct {
	version string
	value   T
}

func (b *byVersion[T]) set(name cache.ObjectName, version string, value T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[cache.ObjectName]versioned[T]{}
	}
	b.all[name] = versioned[T]{version, value}
}

// get returns the value for this version and drops that of another one.
func (b *byVersion[T]) get(name cache.ObjectName, version string) (value T, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.all[name]
	if ok && found.version != version {
		delete(b.all, name)
		return value, false
	}
	return found.value, ok
}

// copied returns all that is kept.
func (b *byVersion[T]) copied() map[cache.ObjectName]versioned[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.all)
}

func (b *byVersion[T]) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.all)
}

func (b *byVersion[T]) forget(name cache.ObjectName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, name)
}

// writeExpectations are the versions of Secrets that this process has overwritten. Such a version
// is stale and causes no second write.
type writeExpectations struct{ byVersion[struct{}] }

func (e *writeExpectations) wrote(secret *tokensecrets.TokenSecret) {
	e.set(secret.ObjectName(), version(secret), struct{}{})
}

// stale reports whether this process has overwritten this version of the Secret.
func (e *writeExpectations) stale(secret *tokensecrets.TokenSecret) bool {
	_, wrote := e.get(secret.ObjectName(), version(secret))
	return wrote
}

func version(secret *tokensecrets.TokenSecret) string {
	return string(secret.UID) + "/" + secret.ResourceVersion
}

// createExpectation is the Secret that was requested, created and referenced for an account. It is
// kept until the caches show the Secret and the reference.
type createExpectation struct {
	secret              string
	created, referenced bool
	// at is when it was referenced.
	at time.Time
}
