// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import (
	"context"
	"sync"
	"time"
)

// Every begins a call each interval until ctx ends, whether or not those before have returned. It
// returns when all of them have, and cancels none.
func Every(ctx context.Context, interval time.Duration, call func(ctx context.Context, i int)) {
	var calls sync.WaitGroup
	defer calls.Wait()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		calls.Go(func() { call(context.WithoutCancel(ctx), i) })
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
