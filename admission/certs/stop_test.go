// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

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

// slowWatch needs a moment to end, as one whose connection is closed does.
type slowWatch struct{ *watch.RaceFreeFakeWatcher }

func (w slowWatch) Stop() {
	time.Sleep(reconcile.WatchStopTimeout / 2)
	w.RaceFreeFakeWatcher.Stop()
}

// TestManagedAwaitsItsWatch: who ends it may close the client, and nothing of it goes on.
func TestManagedAwaitsItsWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependWatchReactor("secrets", func(clienttesting.Action) (bool, watch.Interface, error) {
			return true, slowWatch{watch.NewRaceFreeFake()}, nil
		})
		m := NewManaged(ManagedConfig{Client: client})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := m.Run(ctx); err != nil {
			t.Error(err)
		}
		if !m.informer.IsStopped() {
			t.Error("Run has ended, and its watch goes on")
		}
		pause(reconcile.WatchStopTimeout)
	})
}
