// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

func TestNothingBeginsAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := testutil.NewDiary()
		r := run(t.Context(), Config[string]{Sync: func(ctx context.Context, key string) error {
			d.Write(key + " begins")
			time.Sleep(2 * time.Second)
			if err := ctx.Err(); err != nil {
				t.Errorf("the sync under way is cancelled before the drain time is over: %v", err)
			}
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
