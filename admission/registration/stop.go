// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"sync"
	"time"
)

// stopPatience is how long who has ended waits for its watches. client-go sleeps for up to
// a minute between two tries to reach an apiserver that is away, and does not hear that
// nobody wants it any more (Reflector.watchList in tools/cache).
const stopPatience = 2 * time.Second

// awaitWatches waits for watches whose context has ended. One that sleeps is not waited
// for: it finds its context over when it wakes up, and tells nobody anything any more.
func awaitWatches(watching *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() { defer close(ended); watching.Wait() }()
	select {
	case <-ended:
	case <-time.After(stopPatience):
	}
}
