// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"sync"
	"time"
)

// StopPatience is how long AwaitWatches waits. client-go sleeps for up to a minute between
// two tries to reach an apiserver that is away, and does not hear that nobody wants it any
// more (Reflector.watchList in tools/cache).
const StopPatience = 2 * time.Second

// AwaitWatches waits for watches whose context has ended. One that sleeps is not waited for:
// it finds its context over when it wakes up, and tells nobody anything any more.
//
// Package view of the controllers has the same: neither may import the other.
func AwaitWatches(watching *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() { defer close(ended); watching.Wait() }()
	select {
	case <-ended:
	case <-time.After(StopPatience):
	}
}
