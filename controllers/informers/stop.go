// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import "time"

// StopPatience is how long AwaitWatches waits. client-go sleeps for up to a minute between
// two tries to reach an apiserver that is away, and does not hear that nobody wants it any
// more (Reflector.watchList in tools/cache).
const StopPatience = 2 * time.Second

// Stop waits until every watch has ended; the context given to Start must have.
func (v *View) Stop() {
	AwaitWatches(func() {
		v.all.Shutdown()
		v.tokenSecrets.Shutdown()
		v.rootCAs.Shutdown()
		v.keyRing.Shutdown()
	})
}

// AwaitWatches waits until wait has, which waits for watches whose context has ended. One
// that sleeps is not waited for: it finds its context over when it wakes up.
//
// Package admission has the same: neither may import the other.
func AwaitWatches(wait func()) {
	ended := make(chan struct{})
	go func() { defer close(ended); wait() }()
	select {
	case <-ended:
	case <-time.After(StopPatience):
	}
}
