// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// limiter decides which Events are sent: each object has a budget, and no note is repeated within
// repeatAfter.
type limiter struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	seen  *lru.Cache // object key -> *history
}

// history has the notes sent about one object within repeatAfter. The budget bounds them.
type history struct {
	budget *rate.Limiter
	sent   map[string]time.Time // reason and note -> when
}

func newLimiter(clock clock.PassiveClock) *limiter {
	return &limiter{clock: clock, seen: lru.New(limitedObjects)}
}

func (l *limiter) allow(regarding *corev1.ObjectReference, note string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	object := l.historyOf(objectKey(regarding))
	maps.DeleteFunc(object.sent, func(_ string, at time.Time) bool { return now.Sub(at) >= repeatAfter })

	if _, fresh := object.sent[note]; fresh || !object.budget.AllowN(now, 1) {
		return false
	}
	object.sent[note] = now
	return true
}

func (l *limiter) historyOf(key string) *history {
	if object, ok := l.seen.Get(key); ok {
		return object.(*history)
	}
	object := &history{budget: rate.NewLimiter(rate.Every(interval), burst), sent: map[string]time.Time{}}
	l.seen.Add(key, object)
	return object
}

func objectKey(ref *corev1.ObjectReference) string {
	return ref.Kind + "/" + ref.Namespace + "/" + ref.Name + "/" + string(ref.UID)
}
