// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testutil_test

import (
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

// TestJump is also what notices that package time has another layout.
func TestJump(t *testing.T) {
	t.Parallel()
	for name, jump := range map[string]time.Duration{"Forward": time.Hour, "Back": -time.Hour, "None": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := testutil.NewJumpingClock()
				before, now := c.Now(), time.Now()
				if !before.Round(0).Equal(now) {
					t.Errorf("it begins at %v, want %v", before, now)
				}
				c.Jump(jump)
				time.Sleep(1500 * time.Millisecond)
				after := c.Now()
				if got := after.Sub(before); got != 1500*time.Millisecond {
					t.Errorf("%v have passed, want 1.5s", got)
				}
				if got := c.Since(before); got != 1500*time.Millisecond {
					t.Errorf("it is %v since, want 1.5s", got)
				}
				if got := after.Round(0).Sub(before.Round(0)); got != jump+1500*time.Millisecond {
					t.Errorf("the time of day has moved by %v, want %v", got, jump+1500*time.Millisecond)
				}
				if later := before.Add(time.Second); !later.Before(after) || later.Sub(before) != time.Second {
					t.Errorf("a second later is %v", later)
				}
			})
		})
	}
}
