// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

// TestOverlapAcrossAJump: the end of an overlap is a time of day, which outlives the
// process. So a jump makes it come earlier or later by as much, and by no more.
func TestOverlapAcrossAJump(t *testing.T) {
	t.Parallel()
	const overlap = 2 * time.Hour
	cases := map[string]struct {
		reason string
		jump   time.Duration
		ends   time.Duration
	}{
		"Forward": {reason: "shorter by the jump", jump: time.Hour, ends: overlap - time.Hour},
		"Back":    {reason: "as if it had begun then", jump: -time.Hour, ends: overlap + 10*time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock, c := testutil.NewJumpingClock(), newCluster(t, "AB")
				c.clock = clock
				p := c.start("A", overlap)
				synctest.Wait()
				p.offer("B")
				testutil.Check(t, "published after the change", "BA", p.published())
				time.Sleep(10 * time.Minute)
				clock.Jump(tc.jump)
				p.offer("B") // or else it is looked at later
				testutil.Check(t, "published after the jump", "BA", p.published())
				time.Sleep(tc.ends - 10*time.Minute - time.Second)
				testutil.Check(t, tc.reason+": a second before the end", "BA", p.published())
				time.Sleep(time.Second)
				testutil.Check(t, tc.reason+": at the end", "B", p.published())
				testutil.Check(t, "state", "B", c.stored())
			})
		})
	}
}
