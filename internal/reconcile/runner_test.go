// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

var errBoom = errors.New("boom")

// running is a Runner under Run, and how to end it.
type running struct {
	*Runner[string]
	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned
}

// run starts a Runner. It belongs into a synctest bubble, which fails the test if Run leaves
// anything behind.
func run(ctx context.Context, config Config[string]) *running {
	if config.Name == "" {
		config.Name = "test"
	}
	config.Workers = max(config.Workers, 1)
	ctx, cancel := context.WithCancel(ctx)
	r := &running{Runner: New(config), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.Run(ctx)
	}()
	return r
}

func (r *running) stop() {
	r.cancel()
	<-r.ended
}

// hasEnded reports whether Run has returned by now.
func (r *running) hasEnded() bool {
	synctest.Wait()
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

func TestNothingBeginsAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := testutil.NewDiary()
		r := run(t.Context(), Config[string]{Sync: func(ctx context.Context, key string) error {
			d.Write(key + " begins")
			time.Sleep(2 * time.Second)
			testutil.CheckError(t, "the sync under way, before the drain time is over", "", ctx.Err())
			d.Write(key + " ends")
			return errBoom
		}})
		r.Add("under way")
		synctest.Wait()
		r.Add("queued")
		r.AddAfter("due soon", time.Second)

		r.cancel()
		if r.hasEnded() {
			t.Error("Run returned although a sync is under way")
		}
		r.Add("too late")
		<-r.ended
		d.Write("Run ends")
		time.Sleep(time.Hour) // nor is it retried

		want := []string{"0s under way begins", "2s under way ends", "2s Run ends"}
		testutil.Check(t, "what happened", want, d.Lines())
	})
}

func TestAHangingSyncIsCancelledAfterTheDrainTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause error
		r := run(t.Context(), Config[string]{Sync: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			cause = ctx.Err()
			return cause
		}})
		r.Add("hangs")
		time.Sleep(time.Hour) // a sync may take its time as long as the loop runs
		if cause != nil {
			t.Fatalf("the sync was cancelled while the loop ran: %v", cause)
		}

		d := testutil.NewDiary()
		r.stop()
		d.Write("Run ends")
		testutil.Check(t, "what happened", []string{DrainTimeout.String() + " Run ends"}, d.Lines())
		if cause != context.Canceled {
			t.Errorf("the sync ended with %v, want %v", cause, context.Canceled)
		}
	})
}

// TestAcrossAJump: what is to come later neither comes at once nor an hour late because
// the time of day has jumped.
func TestAcrossAJump(t *testing.T) {
	t.Parallel()
	testutil.EachJump(t, func(t *testing.T, jump time.Duration) {
		d, clock, failures := testutil.NewDiary(), testutil.NewJumpingClock(), 2
		r := run(t.Context(), Config[string]{Clock: clock, Sync: func(_ context.Context, key string) error {
			d.Write(key)
			if key == "fails" && failures > 0 {
				failures--
				return errBoom
			}
			return nil
		}})
		defer r.stop()
		r.AddAfter("later", time.Minute)
		r.Add("fails")
		d.Lines()
		clock.Jump(jump)
		time.Sleep(3 * time.Hour)
		testutil.Check(t, "syncs", []string{"0s fails", "20ms fails", "60ms fails", "1m0s later"}, d.Lines())
	})
}

// TestRunAgain covers a process that leads, loses the lease and leads again, and a replica that gets
// events of work for the leader.
func TestRunAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := testutil.NewDiary()
		r := New(Config[string]{Workers: 1, Sync: func(_ context.Context, key string) error {
			d.Write(key)
			return nil
		}})
		r.AddIfRunning("before")
		for _, key := range []string{"first", "second"} {
			r.Add(key)
			r.AddAfter("too late", time.Hour)
			time.AfterFunc(time.Second, func() { r.AddIfRunning("event of " + key) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			r.Run(ctx)
			cancel()
			r.AddIfRunning("between " + key)
		}
		testutil.Check(t, "syncs", []string{"0s first", "1s event of first", "1m0s second", "1m1s event of second"}, d.Lines())
	})
}

// TestStopAtOnce covers a lost lease: somebody else may lead by now.
func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := testutil.NewDiary()
		r := New(Config[string]{Workers: 1, Sync: func(ctx context.Context, key string) error {
			d.Write(key)
			<-ctx.Done()
			return ctx.Err()
		}})
		r.Add("under way")
		r.Add("waiting")
		queue := r.current()
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(ErrAtOnce) })
		r.Run(ctx)
		testutil.Check(t, "what is under way is not waited for", time.Second, time.Since(d.Began))
		testutil.Check(t, "syncs", []string{"0s under way"}, d.Lines())
		testutil.Check(t, "depth of the queue, a metric", 0, queue.Len())
	})
}
