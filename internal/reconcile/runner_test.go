// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOneKeyIsNeverInTwoWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := openDiary()
		var inWork [2]atomic.Int32
		r := run(t.Context(), Config[string]{Workers: 4, Sync: func(_ context.Context, key string) error {
			mine := &inWork[key[0]-'a']
			if mine.Add(1) > 1 {
				t.Errorf("key %q is in two workers", key)
			}
			defer mine.Add(-1)
			d.write(key)
			time.Sleep(time.Second)
			return nil
		}})
		defer r.stop()

		r.Add("a")
		synctest.Wait()
		for range 3 {
			r.Add("a") // in work: all three make one more sync
		}
		r.Add("b") // another key does not wait
		time.Sleep(time.Minute)

		if diff := cmp.Diff([]string{"0s a", "0s b", "1s a"}, d.read()); diff != "" {
			t.Errorf("syncs (-want +got):\n%s", diff)
		}
	})
}

func TestKeysAddedBeforeRunAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := openDiary()
		r := New(Config[string]{Workers: 1, Sync: func(_ context.Context, key string) error {
			d.write(key)
			return nil
		}})
		r.Add("now")
		r.Add("now")
		r.AddAfter("later", time.Minute)
		time.Sleep(time.Second)

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r.Run(ctx)
		if diff := cmp.Diff([]string{"1s now", "1m0s later"}, d.read()); diff != "" {
			t.Errorf("syncs (-want +got):\n%s", diff)
		}
	})
}

func TestNothingBeginsAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := openDiary()
		r := run(t.Context(), Config[string]{Sync: func(ctx context.Context, key string) error {
			d.write(key + " begins")
			time.Sleep(2 * time.Second)
			if err := ctx.Err(); err != nil {
				t.Errorf("the sync under way is cancelled before the drain time is over: %v", err)
			}
			d.write(key + " ends")
			return nil
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
		d.write("Run ends")

		want := []string{"0s under way begins", "2s under way ends", "2s Run ends"}
		if diff := cmp.Diff(want, d.read()); diff != "" {
			t.Errorf("what happened (-want +got):\n%s", diff)
		}
	})
}

// The worker holds a key when the loop ends: what it would take next is not to begin, whether it
// fails or not.
func TestNothingIsRetriedAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := openDiary()
		r := run(t.Context(), Config[string]{Workers: 2, Sync: func(_ context.Context, key string) error {
			d.write(key)
			time.Sleep(time.Second)
			return errBoom
		}})
		r.Add("a")
		r.Add("b")
		synctest.Wait()
		r.Add("a")
		r.stop()
		time.Sleep(time.Hour)
		if got := len(d.read()); got != 2 {
			t.Errorf("%d syncs began, want the 2 from before the end: %v", got, d.read())
		}
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

		d := openDiary()
		r.stop()
		d.write("Run ends")
		if diff := cmp.Diff([]string{drainTimeout.String() + " Run ends"}, d.read()); diff != "" {
			t.Errorf("what happened (-want +got):\n%s", diff)
		}
		if cause != context.Canceled {
			t.Errorf("the sync ended with %v, want %v", cause, context.Canceled)
		}
	})
}

func TestAnIdleLoopEndsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := run(t.Context(), Config[string]{Workers: 3, Sync: func(context.Context, string) error { return nil }})
		r.Add("a")
		synctest.Wait()
		d := openDiary()
		r.stop()
		d.write("Run ends")
		if diff := cmp.Diff([]string{"0s Run ends"}, d.read()); diff != "" {
			t.Errorf("what happened (-want +got):\n%s", diff)
		}
	})
}
