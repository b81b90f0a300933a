// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/controllertest"
)

func TestStandbyQueuesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := worldAt(t, time.Time{})
		w.Cache(t, account(), tokenSecret("one"), tokenSecret("two"), tokenSecret("full", filled(t)))
		var queued []string
		w.secretLoop.Sync = func(_ context.Context, name cache.ObjectName) error {
			queued = append(queued, name.Name)
			return nil
		}
		controllertest.CheckStandby(t, w.Run, func() { w.RootCA.Set(testBundle(t)) }, &queued, "one", "two")
	})
}
