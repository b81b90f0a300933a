// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/testaway"
)

// TestKeeperEndsWhileTheAPIServerIsAway: a term must not last longer than its lease because
// client-go sleeps between its tries.
func TestKeeperEndsWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const term = 10 * time.Minute
		a := newAuthorities(t, "A")
		k := NewBundleController(BundleControllerConfig{
			Client: testaway.Client(t), Source: NewSource(nil), File: a.bundle(t, "A"), Overlap: time.Hour,
			Recorder: events.NewRecorderTo(&sink{}, clock.RealClock{}),
			Process:  &corev1.ObjectReference{Kind: "Lease", Name: "process"},
		})
		ctx, cancel := context.WithTimeout(t.Context(), term)
		defer cancel()
		begin := time.Now()
		if err := k.Run(ctx); err != nil {
			t.Error(err)
		}
		if late := time.Since(begin) - term; late > reconcile.WatchStopTimeout {
			t.Errorf("Run ended %v late, want %v at most", late, reconcile.WatchStopTimeout)
		}
		time.Sleep(time.Minute) // by then the watch has woken up and ended
	})
}
