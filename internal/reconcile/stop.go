// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"time"
)

const (
	// drainTimeout bounds a sync that is under way when a Runner is to stop.
	drainTimeout = 5 * time.Second

	// WatchStopTimeout is how long AwaitWatches waits.
	WatchStopTimeout = 2 * time.Second
)

// ErrAtOnce is the cause of a context that has ended and leaves no time to finish what
// is under way, such as when the lease is lost.
var ErrAtOnce = errors.New("stop at once")

// AwaitWatches waits until wait returns, which waits for watches whose context has ended,
// but no longer than WatchStopTimeout. client-go sleeps for up to a minute between two tries
// to reach an apiserver that is away and does not notice its context meanwhile
// (Reflector.watchList in tools/cache). A watch that is left behind so ends when it wakes up.
func AwaitWatches(wait func()) {
	ended := make(chan struct{})
	go func() { defer close(ended); wait() }()
	select {
	case <-ended:
	case <-time.After(WatchStopTimeout):
	}
}
