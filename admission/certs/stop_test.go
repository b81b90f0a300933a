// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/testutil"
)

// TestManagedEndsWhileTheAPIServerIsAway: the process must not go on because client-go
// sleeps between its tries.
func TestManagedEndsWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const term = 10 * time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), term)
		defer cancel()
		begin := time.Now()
		if err := NewManaged(ManagedConfig{Client: testutil.UnreachableClient(t)}).Run(ctx); err != nil {
			t.Error(err)
		}
		if late := time.Since(begin) - term; late > reconcile.WatchStopTimeout {
			t.Errorf("Run ended %v late, want %v at most", late, reconcile.WatchStopTimeout)
		}
		pause(time.Minute) // by then the watch has woken up and ended
	})
}
