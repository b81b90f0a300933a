// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"sa-controller-manager/internal/testutil"
)

// patient is a Runner on a clock that the test moves, whose syncs fail for the keys that are
// broken.
type patient struct {
	*running
	clock *clocktesting.FakeClock

	mu     sync.Mutex
	broken map[string]error
	syncs  int
}

func newPatient(ctx context.Context, metrics *Metrics, broken map[string]error) *patient {
	p := &patient{clock: clocktesting.NewFakeClock(time.Unix(0, 0)), broken: maps.Clone(broken)}
	p.running = run(ctx, Config[string]{Name: "patient", Clock: p.clock, Metrics: metrics, Sync: p.sync})
	return p
}

func (p *patient) sync(_ context.Context, key string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.syncs++
	return p.broken[key]
}

func (p *patient) repair(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.broken, key)
}

// after moves the clock and returns how many syncs there have been by then.
func (p *patient) after(d time.Duration) int {
	synctest.Wait()
	p.clock.Step(d)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.syncs
}

// due moves the clock to just before delay and then to it, and reports whether exactly one sync
// came, and not too early.
func (p *patient) due(t *testing.T, nth int, delay time.Duration) {
	t.Helper()
	before := p.after(0)
	testutil.Require(t, p.after(delay-1) == before, "retry %d came before %v", nth, delay)
	got := p.after(1)
	testutil.Require(t, got == before+1, "%d retries came after %v, want retry %d alone", got-before, delay, nth)
}

func TestAFailedKeyIsNeverGivenUp(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		p := newPatient(t.Context(), nil, map[string]error{"a": errBoom})
		defer p.stop()
		p.Add("a")
		delay := firstBackoff
		for n := range 30 {
			p.due(t, n+1, delay)
			delay = min(2*delay, maxBackoff)
		}
		testutil.Require(t, delay == maxBackoff, "30 retries have not reached the cap, but %v", delay)

		p.repair("a")
		p.due(t, 31, maxBackoff)
		before, got := p.after(0), p.after(24*time.Hour)
		testutil.Expect(t, got == before, "%d syncs came after the successful one, want none", got-before)

		p.mu.Lock()
		p.broken["a"] = errBoom
		p.mu.Unlock()
		p.Add("a")
		p.due(t, 1, firstBackoff)
	})
}

func TestStuckKeysAreCounted(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		registry := metrics.NewKubeRegistry()
		p := newPatient(t.Context(), NewMetrics(registry.MustRegister), map[string]error{"a": errBoom, "b": errBoom})
		defer p.stop()
		expect := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			series := []string{fmt.Sprintf(`sacm_stuck_keys{name="patient"} %d`, want)}
			testutil.Check(t, when+": metrics", series, testutil.Series(registry, ""))
		}
		fail := func(times int) {
			for range times {
				p.after(maxBackoff)
			}
		}

		expect("before any key", 0)
		p.Add("a")
		fail(8)
		expect("after 9 failures", 0)
		fail(1)
		expect("after 10 failures", 1)
		p.Add("b")
		fail(9)
		expect("after 10 failures of another key", 2)
		p.repair("a")
		fail(1)
		expect("after a success of the first key", 1)
		p.stop()
		expect("after the end: another process may lead", 0)
	})
}

// What a person reads of a key that fails: the first time, and when it is stuck. A conflict is the business of the retry.
func TestWhatIsLoggedOfAFailingKey(t *testing.T) {
	t.Parallel()
	const failed, stuck = "Failed to sync, retrying", "Key is stuck and is still retried"
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "x", errBoom)
	for name, tc := range map[string]struct {
		err      error
		failures int
		want     []string
	}{
		"Failed":        {errBoom, 9, []string{failed}},
		"Stuck":         {errBoom, 25, []string{failed, stuck}},
		"Conflict":      {conflict, 9, nil},
		"StuckConflict": {conflict, 25, []string{stuck}},
		"StaleCache":    {fmt.Errorf("object: %w", ErrStaleCache), 9, nil},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(0)))
			p := newPatient(klog.NewContext(t.Context(), logger), nil, map[string]error{"a": tc.err})
			p.Add("a")
			for range tc.failures - 1 {
				p.after(maxBackoff)
			}
			synctest.Wait()
			p.stop()
			var lines []string
			for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
				lines = append(lines, entry.Message)
				testutil.Check(t, "values of the line", []any{"queue", "patient", "key", "a"}, entry.WithKVList)
			}
			testutil.Check(t, "lines", tc.want, lines)
		})
	}
}

// TestEventsOfAFailingKey has an event come every 100 ms, as from a policy that undoes each write and changes the object.
func TestEventsOfAFailingKey(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		p := newPatient(t.Context(), nil, map[string]error{"a": errBoom})
		defer p.stop()
		p.Add("a")
		for range 600 {
			p.Add("a")
			p.after(100 * time.Millisecond)
		}
		if got := p.after(0); got < sharedAfter+5 || got > sharedAfter+16 {
			t.Errorf("%d syncs within a minute, want few retries at once, and then one in ten seconds besides those that are due", got)
		}
		p.repair("a")
		p.Add("a")
		before := p.after(0)
		testutil.Check(t, "syncs within ten seconds of the event that brings the remedy", before+1, p.after(eventPeriod))
	})
}

// TestFailingKeysLeaveWorkers has kube-apiserver refuse the keys of one user slowly, while another user's key is new.
func TestFailingKeysLeaveWorkers(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		var began, synced time.Time
		r := run(t.Context(), Config[string]{Name: "slow", Workers: 4, Sync: func(_ context.Context, key string) error {
			if key == "other" {
				synced = time.Now()
				return nil
			}
			time.Sleep(time.Second)
			return errBoom
		}})
		defer r.stop()
		for n := range 400 {
			r.Add(fmt.Sprint(n))
		}
		time.Sleep(2 * time.Minute) // all have failed once
		began = time.Now()
		r.Add("other")
		time.Sleep(time.Minute)
		if wait := synced.Sub(began); synced.IsZero() || wait > time.Second {
			t.Errorf("the other key waited for %v, want no longer than a worker needs to look past those that failed", wait)
		}
	})
}
