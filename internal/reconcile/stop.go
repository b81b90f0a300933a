// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"time"
)

const (
	// DrainTimeout bounds the syncs in progress when a Runner stops.
	DrainTimeout = 5 * time.Second

	// WatchStopTimeout is how long AwaitWatches waits.
	WatchStopTimeout = 2 * time.Second
)

// ErrAtOnce is the cause of a context that leaves no time for syncs in progress, for example when
// the Lease is lost.
var ErrAtOnce = errors.New("stop at once")

// AwaitWatches calls wait, which waits for watches whose context has ended, and returns after
// WatchStopTimeout at the latest. Between two tries to reach an API server client-go sleeps for up
// to a minute and ignores its context (Reflector.watchList in tools/cache). A watch that is left
// behind ends when it wakes up.
func AwaitWatches(wait func()) {
	ended := make(chan struct{})
	go func() { defer close(ended); wait() }()
	select {
	case <-ended:
	case <-time.After(WatchStopTimeout):
	}
}
