// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
)

// TestAcrossAJump: what is to come later neither comes at once nor an hour late because
// the time of day has jumped.
func TestAcrossAJump(t *testing.T) {
	t.Parallel()
	testutil.EachJump(t, func(t *testing.T, jump time.Duration) {
		d, clock, failures := testutil.NewDiary(), testutil.NewJumpingClock(), 2
		r := run(t.Context(), Config[string]{Clock: clock, Sync: func(_ context.Context, key string) error {
			d.Write(key)
			if key == "fails" && failures > 0 {
				failures--
				return errBoom
			}
			return nil
		}})
		defer r.stop()
		r.AddAfter("later", time.Minute)
		r.Add("fails")
		d.Lines()
		clock.Jump(jump)
		time.Sleep(3 * time.Hour)
		testutil.Check(t, "syncs", []string{"0s fails", "20ms fails", "60ms fails", "1m0s later"}, d.Lines())
	})
}
