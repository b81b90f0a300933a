// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/admission"
)

// errTooManyWaiters: as many requests are waiting already as may.
var errTooManyWaiters = errors.New("too many requests wait for service accounts and tokens")

// Waiters lets requests wait for what an informer has not shown yet. Every Wake of a
// name makes those who wait for it look again; nobody looks in between. It may be used
// by several goroutines.
type Waiters struct {
	most    int
	metrics *Metrics

	mu      sync.Mutex
	entered int
	rooms   map[cache.ObjectName]*room
}

// room is where all wait who wait for the same name.
type room struct {
	people int
	woken  chan struct{} // closed by Wake, and the room is gone then
}

// NewWaiters returns Waiters of whom nobody waits. Most bounds the requests that wait or
// ask the apiserver at a time: an apiserver that does not answer, and calls about accounts
// that do not exist, cannot pile up here and take all that may be decided. Metrics may be
// nil.
func NewWaiters(most int, metrics *Metrics) *Waiters {
	return &Waiters{most: most, metrics: metrics, rooms: map[cache.ObjectName]*room{}}
}

// Wake makes those look again who wait for the account of that name, or for its token.
// What they look at must have changed before.
func (w *Waiters) Wake(name cache.ObjectName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if room, ok := w.rooms[name]; ok {
		delete(w.rooms, name)
		close(room.woken)
	}
}

// enter counts a request in, if there is room for it. One that was let in must leave.
func (w *Waiters) enter() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entered >= w.most {
		return false
	}
	w.entered++
	w.metrics.setWaiting(w.entered)
	return true
}

func (w *Waiters) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entered--
	w.metrics.setWaiting(w.entered)
}

// await returns true once found does, false if ctx ends first. It asks found at once
// and then after every Wake of name. The caller has entered.
func (w *Waiters) await(ctx context.Context, name cache.ObjectName, found func() bool) bool {
	for {
		// To join before looking is what makes a Wake in between count.
		room := w.join(name)
		if found() {
			w.quit(name, room)
			return true
		}
		select {
		case <-room.woken:
		case <-ctx.Done():
			w.quit(name, room)
			return false
		}
	}
}

func (w *Waiters) join(name cache.ObjectName) *room {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rooms[name] == nil {
		w.rooms[name] = &room{woken: make(chan struct{})}
	}
	w.rooms[name].people++
	return w.rooms[name]
}

// quit gives up a place in room. The last one out closes it, unless Wake has.
func (w *Waiters) quit(name cache.ObjectName, room *room) {
	w.mu.Lock()
	defer w.mu.Unlock()
	room.people--
	if room.people == 0 && w.rooms[name] == room {
		delete(w.rooms, name)
	}
}

// tooManyWaiters is the refusal for errTooManyWaiters. Clients try again.
func tooManyWaiters() error {
	return admission.TooManyRequests(errTooManyWaiters.Error(), time.Second)
}
