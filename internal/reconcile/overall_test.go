// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/testutil"
)

// refused is a queue of very many keys, each of whose syncs takes a request that is refused
// until allowed is set.
type refused struct {
	*Runner[int]
	allowed  atomic.Bool
	requests atomic.Int64
	errors   atomic.Int64 // lines in the log
	mu       sync.Mutex
	good     map[int]bool
}

func newRefused(keys int) *refused {
	r := &refused{good: map[int]bool{}}
	r.Runner = New(Config[int]{Name: "refused", Workers: 5, Sync: func(_ context.Context, key int) error {
		r.requests.Add(1)
		if !r.allowed.Load() {
			return errBoom
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.good[key] = true
		return nil
	}})
	for key := range keys {
		r.Add(key)
	}
	return r
}

// run starts it with a log that discards every line but counts the errors.
func (r *refused) run(t *testing.T) {
	count := func(_, line string) {
		if !strings.Contains(line, `"level"=`) {
			r.errors.Add(1)
		}
	}
	logger := funcr.New(count, funcr.Options{})
	testutil.Start(t, func(ctx context.Context) error { r.Run(klog.NewContext(ctx, logger)); return nil })
}

func (r *refused) done() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.good)
}

// in returns how many requests there are within d from now.
func (r *refused) in(d time.Duration) int {
	before := r.requests.Load()
	time.Sleep(d)
	synctest.Wait()
	return int(r.requests.Load() - before)
}

// TestAllRetriesTogetherAreBounded: what a missing permission refuses for every key of a large
// cluster costs kube-apiserver 50 requests a second, and no key waits longer for its turn.
func TestAllRetriesTogetherAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keys = 20000
		r := newRefused(keys)
		var stuck atomic.Int64
		r.stuck.report = func(n int) { stuck.Store(int64(n)) }
		r.run(t)

		if first := r.in(time.Second); first < keys {
			t.Errorf("%d requests at once, want a first one for each of %d keys", first, keys)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		// The alert does not wait until each of them has had its turn ten times.
		if got := stuck.Load(); got < keys/2 {
			t.Errorf("%d of %d keys count as stuck after ten seconds", got, keys)
		}
		time.Sleep(50 * time.Second)
		if lines := r.errors.Load(); lines < 10 || lines > 10+61 {
			t.Errorf("%d lines in the log after a minute, want the first ten and one a second", lines)
		}
		for minute := range 10 {
			const most = 60*sharedRate + 1 // both ends of the minute count
			if n := r.in(time.Minute); n > most {
				t.Fatalf("%d requests in minute %d, want %d at most", n, minute, most)
			}
		}

		r.Add(keys) // comes late
		synctest.Wait()
		if n := r.in(time.Second); n < sharedRate {
			t.Errorf("%d requests in the second of a new key, want its first attempts beside the others", n)
		}
		r.allowed.Store(true)
		time.Sleep((keys + 1) * time.Second / sharedRate)
		synctest.Wait()
		if got := r.done(); got != keys+1 {
			t.Errorf("%d of %d keys succeed within N/50 s", got, keys+1)
		}
	})
}

// TestEventsDelayNoOtherKey: the events of an object whose syncs fail take no turns from other keys that fail.
func TestEventsDelayNoOtherKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var healed atomic.Bool
		var done time.Time
		r := New(Config[string]{Name: "events", Workers: 2, Sync: func(_ context.Context, key string) error {
			if key == "changes" || !healed.Load() {
				return errBoom
			}
			done = time.Now()
			return nil
		}})
		testutil.Start(t, func(ctx context.Context) error { r.Run(ctx); return nil })
		r.Add("other")
		for range 5 * 60 * 200 { // for five minutes
			r.Add("changes")
			time.Sleep(time.Second / 200)
		}
		healed.Store(true)
		since := time.Now()
		time.Sleep(maxBackoff + time.Second)
		synctest.Wait()
		if done.IsZero() {
			t.Errorf("the other key was not synced within %v", time.Since(since))
		}
	})
}
