// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/testutil"
)

// TestEndsWhileTheAPIServerIsAway: neither a term nor the process must go on because
// client-go sleeps between its tries.
func TestEndsWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	starts := map[string]func(t *testing.T) func(context.Context) error{
		"Registrar": func(t *testing.T) func(context.Context) error {
			return New(Config{Spec: urlSpec(), Client: testutil.UnreachableClient(t), ServingCA: &servingCA{}}).Run
		},
	}
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const term = 10 * time.Minute
				ctx, cancel := context.WithTimeout(t.Context(), term)
				defer cancel()
				begin := time.Now()
				if err := start(t)(ctx); err != nil {
					t.Error(err)
				}
				if late := time.Since(begin) - term; late > reconcile.WatchStopTimeout {
					t.Errorf("Run ended %v late, want %v at most", late, reconcile.WatchStopTimeout)
				}
				pause(time.Minute) // by then the watches have woken up and ended
			})
		})
	}
}
