// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

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
	testutil.Pause(d)
	return int(r.requests.Load() - before)
}

// TestAllRetriesTogetherAreBounded: what a missing permission refuses for every key of a large
// cluster costs kube-apiserver 50 requests a second, and no key waits longer for its retry.
func TestAllRetriesTogetherAreBounded(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		const keys = 20000
		r := newRefused(keys)
		var stuck atomic.Int64
		r.stuck.report = func(n int) { stuck.Store(int64(n)) }
		r.run(t)

		first := r.in(time.Second)
		testutil.Expect(t, first >= keys, "%d requests at once, want a first one for each of %d keys", first, keys)
		testutil.Pause(10 * time.Second)
		// The alert does not wait until each of them was retried ten times.
		got := stuck.Load()
		testutil.Expect(t, got >= keys/2, "%d of %d keys count as stuck after ten seconds", got, keys)
		time.Sleep(50 * time.Second)
		lines := r.errors.Load()
		testutil.Expect(t, lines >= 10 && lines <= 10+61, "%d lines in the log after a minute, want the first ten and one a second", lines)
		for minute := range 10 {
			const most = 60*sharedRate + 1 // both ends of the minute count
			n := r.in(time.Minute)
			testutil.Require(t, n <= most, "%d requests in minute %d, want %d at most", n, minute, most)
		}

		r.Add(keys) // comes late
		synctest.Wait()
		n := r.in(time.Second)
		testutil.Expect(t, n >= sharedRate, "%d requests in the second of a new key, want its first attempts beside the others", n)
		r.allowed.Store(true)
		testutil.Pause((keys + 1) * time.Second / sharedRate)
		testutil.Check(t, "keys that succeed within N/50 s", keys+1, r.done())
	})
}

// TestEventsDelayNoOtherKey: the events of an object whose syncs fail delay no retry of other keys that fail.
func TestEventsDelayNoOtherKey(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
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
		testutil.Pause(maxBackoff + time.Second)
		if done.IsZero() {
			t.Errorf("the other key was not synced within %v", time.Since(since))
		}
	})
}

// TestDamping has another client undo each write at once, and then waits.
func TestDamping(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason      string
		first, most time.Duration
		want        []time.Duration // between two writes
	}{
		"Doubles": {
			"kube-root-ca.crt comes back soon, and costs hardly any load", time.Second, 10 * time.Second,
			[]time.Duration{1e9, 2e9, 4e9, 8e9, 10e9, 10e9},
		},
		"Constant": {"one creation for an account in ten seconds", 10 * time.Second, 10 * time.Second, []time.Duration{10e9, 10e9, 10e9}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := testclock.NewFakePassiveClock(time.Now())
			damping := NewDamping[string](tc.first, tc.most, clock)
			advance := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
			delay, again := damping.Delay("a"), damping.Wrote("a")
			testutil.Expect(t, delay == 0 && !again, "the first write waits for %v, again %t", delay, again)
			var got []time.Duration
			for n := range tc.want {
				delay := damping.Delay("a")
				got = append(got, delay)
				advance(delay / 2)
				testutil.Check(t, "left", delay-delay/2, damping.Delay("a"))
				advance(delay - delay/2)
				left, again := damping.Delay("a"), damping.Wrote("a")
				testutil.Expect(t, left == 0 && again == (n > 0), "after %v write %d waits for %v, again %t", delay, n+2, left, again)
			}
			testutil.Check(t, tc.reason, tc.want, got)
			if delay, again := damping.Delay("b"), damping.Wrote("b"); delay != 0 || again {
				t.Errorf("another object waits for %v, again %t", delay, again)
			}
			advance(2*tc.most + 1)
			if delay, again := damping.Delay("a"), damping.Wrote("a"); delay != 0 || again {
				t.Errorf("an object that was left alone waits for %v, again %t", delay, again)
			}
			testutil.Check(t, "it begins again with", tc.first, damping.Delay("a"))
		})
	}
}

// TestDampingIsBounded: a tenant who makes and deletes objects all day takes no memory.
func TestDampingIsBounded(t *testing.T) {
	t.Parallel()
	damping := NewDamping[int](time.Hour, time.Hour, testclock.NewFakePassiveClock(time.Now()))
	for i := range 3 * dampedObjects {
		damping.Wrote(i)
	}
	kept := 0
	for i := range 3 * dampedObjects {
		if damping.Delay(i) > 0 {
			kept++
		}
	}
	testutil.Check(t, "objects that are kept", dampedObjects, kept)
}

// quotingError is an error whose text has data of an object.
type quotingError struct{ secret *corev1.Secret }

func (e quotingError) Error() string { return fmt.Sprintf("cannot use %q", e.secret.Data) }

// panics are what a sync may come to grief with. hunter2 stands for what no log may hold.
func panics() map[string]func(secret *corev1.Secret) {
	return map[string]func(secret *corev1.Secret){
		"Text":    func(secret *corev1.Secret) { panic(string(secret.Data["token"])) },
		"Wrapped": func(secret *corev1.Secret) { panic(errors.Join(errBoom, quotingError{secret})) },
		"Again": func(secret *corev1.Secret) {
			defer func() { panic(recover()) }()
			panic(string(secret.Data["token"]))
		},
		"Index": func(secret *corev1.Secret) { _ = secret.Data["token"][len(secret.Data["token"])+len(secret.Name)] },
	}
}

// TestAPanicEndsTheProcess: it is restarted then, while a worker that has died in silence is
// not. What is printed says where, and what only if that cannot be anybody's secret.
func TestAPanicEndsTheProcess(t *testing.T) {
	t.Parallel()
	const inChild = "LOOP_TEST_PANICS"
	if which := os.Getenv(inChild); which != "" {
		secret := &corev1.Secret{Data: map[string][]byte{"token": []byte("hunter2")}}
		r := run(t.Context(), Config[string]{Name: "q", Sync: func(context.Context, string) error {
			panics()[which](secret)
			return nil
		}})
		r.Add("ns/a")
		<-r.ended
		return
	}
	want := map[string]string{
		"Text":    "a value of type string",
		"Wrapped": "a value of type *errors.joinError",
		"Again":   "a value of type string",
		"Index":   "runtime error: index out of range [7] with length 7",
	}
	for name := range panics() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAPanicEndsTheProcess$", "-test.timeout=30s")
			child.Env = append(os.Environ(), inChild+"="+name)
			output, err := child.CombinedOutput()
			got := string(output)
			if line := `panic: sync of ns/a in queue "q": ` + want[name]; err == nil || !strings.Contains(got, line) {
				t.Errorf("the process ended with %v, want it to end with the line %q. Its output:\n%s", err, line, got)
			}
			testutil.Expect(t, !strings.Contains(got, "hunter2") && !strings.Contains(got, fmt.Sprint([]byte("hunter2"))),
				"it tells the value of the panic:\n%s", got)
			testutil.CheckContains(t, "where it was", "reconcile/overload_test.go:", got)
		})
	}
}
