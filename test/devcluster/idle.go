// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"

	"sa-controller-manager/test/await"
)

// AwaitIdle returns once no queue holds a key and no sync is under way. Keys that wait for
// their time to come, after a failure or in a grace period, do not count.
func (m *Manager) AwaitIdle(ctx context.Context) error {
	last := -1.0
	return await.Poll(ctx, func(ctx context.Context) error {
		metrics, err := m.Metrics(ctx)
		if err != nil {
			return err
		}
		added := metrics.Sum("workqueue_adds_total", nil)
		worked := metrics.Sum("workqueue_work_duration_seconds", nil)
		if depth := metrics.Sum("workqueue_depth", nil); depth != 0 || added != worked {
			return fmt.Errorf("%v keys added, %v worked on, %v waiting", added, worked, depth)
		}
		if added == 0 {
			return errors.New("nothing has been queued yet")
		}
		// One scrape is no snapshot: only if nothing has moved between two of them,
		// nothing moves.
		if added != last {
			last = added
			return errors.New("it has only been idle for a moment")
		}
		return nil
	})
}
