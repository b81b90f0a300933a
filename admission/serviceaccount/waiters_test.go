// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
)

// TestNoWakeIsLost: a change that comes between looking and waiting is seen.
// mostWaiters is what the Waiters of these tests let in.
const mostWaiters = 16

func TestNoWakeIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		name := cache.NewObjectName(testNamespace, defaultAccount)
		w := NewWaiters(mostWaiters, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		looks := 0
		found := w.await(ctx, name, func() bool {
			looks++
			w.Wake(name) // what it looks at changes just now
			return looks == 3
		})
		if !found || looks != 3 {
			t.Errorf("found: %t after %d looks", found, looks)
		}
	})
}

// TestManyWakes lets the race detector see waiters and wakers of one name.
func TestManyWakes(t *testing.T) {
	t.Parallel()
	name := cache.NewObjectName(testNamespace, defaultAccount)
	w := NewWaiters(mostWaiters, nil)
	for range 500 {
		var shown atomic.Bool
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				if !w.await(t.Context(), name, shown.Load) {
					t.Error("gave up")
				}
			})
		}
		group.Go(func() {
			shown.Store(true)
			w.Wake(name)
		})
		group.Wait()
	}
	if len(w.rooms) != 0 {
		t.Errorf("%d rooms remain", len(w.rooms))
	}
}

// TestOneGivesUp: who stops waiting does not take others along.
func TestOneGivesUp(t *testing.T) {
	t.Parallel()
	name := cache.NewObjectName(testNamespace, defaultAccount)
	w := NewWaiters(mostWaiters, nil)
	var shown atomic.Bool
	looked := make(chan struct{})
	patient := make(chan bool)
	go func() {
		first := true
		patient <- w.await(t.Context(), name, func() bool {
			if first {
				first = false
				close(looked)
			}
			return shown.Load()
		})
	}()
	<-looked
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if w.await(ended, name, shown.Load) {
		t.Error("found what is not there")
	}
	shown.Store(true)
	w.Wake(name)
	if !<-patient {
		t.Error("the other gave up too")
	}
}

// TestLooksBeforeItGivesUp: when the account is there and the deadline has passed as
// well, the account counts.
func TestLooksBeforeItGivesUp(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if !NewWaiters(mostWaiters, nil).await(ended, cache.NewObjectName("a", "b"), func() bool { return true }) {
		t.Error("gave up without a look")
	}
}
