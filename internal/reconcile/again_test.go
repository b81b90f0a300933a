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
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(ErrAtOnce) })
		r.Run(ctx)
		if took := time.Since(d.Began); took != time.Second {
			t.Errorf("it ended after %v, want 1s: what was under way is not waited for", took)
		}
		testutil.Check(t, "syncs", []string{"0s under way"}, d.Lines())
	})
}
