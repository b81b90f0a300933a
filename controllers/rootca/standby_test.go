// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"testing"
	"testing/synctest"

	"sa-controller-manager/controllers/controllertest"
)

// TestStandbyQueuesNothing: every replica gets the changed file, and must not fill a queue that
// nobody empties.
func TestStandbyQueuesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthorities(t, "AB")
		w := prepare(t, a, a.bundle(t, "A"))
		w.Cache(t, active("one"), active("two"))
		var queued []string
		w.queue.Workers = 1
		w.queue.Sync = func(_ context.Context, namespace string) error {
			queued = append(queued, namespace)
			return nil
		}
		controllertest.CheckStandby(t, w.Run, func() { w.Source.Set(a.bundle(t, "B")) }, &queued, "one", "two")
	})
}
