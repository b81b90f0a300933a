// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/testutil"
)

// TestStopWhileTheAPIServerIsAway: client-go sleeps between its tries, for longer each
// time, and an end of the process must not wait for that.
func TestStopWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := New(testutil.UnreachableClient(t), 0)
		v.Accounts()
		ctx, cancel := context.WithCancel(t.Context())
		v.Start(ctx)
		time.Sleep(10 * time.Minute)
		cancel()
		begin := time.Now()
		v.Stop()
		if took := time.Since(begin); took > reconcile.WatchStopTimeout {
			t.Errorf("Stop took %v, want %v at most", took, reconcile.WatchStopTimeout)
		}
		time.Sleep(time.Minute) // by then the last one has woken up and ended
	})
}
