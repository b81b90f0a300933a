// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package await

import (
	"context"
	"fmt"
	"time"
)

// pollInterval is much shorter than what anybody waits for, and long enough to leave
// the machine to those who are waited for.
const pollInterval = 50 * time.Millisecond

// Poll asks until the answer is nil. It is for what nothing announces, such as a metric
// or a file: everything in the API has a watch. The error has the last answer that was
// given before ctx ended.
func Poll(ctx context.Context, ask func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error // less the one that the end of ctx causes, which says nothing
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// Sleep waits for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
