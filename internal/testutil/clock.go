// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package testutil

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"k8s.io/utils/clock"
)

// JumpingClock is a clock whose time of day jumps as that of a machine does when it is set by hand
// or corrected from the network.
//
// A machine has two clocks, and time.Now reads both. The time of day jumps. The monotonic one does
// not: timers use it, and so does the difference of two readings (package time, "Monotonic
// Clocks"). A fake clock has the time of day alone, so a jump of it looks like time that passes.
// This clock has both. Time passes as the test's own does, in a synctest bubble by time.Sleep,
// and jumps by Jump. Timers are those of package time. It is safe for concurrent use, within one
// bubble if it was made in one.
type JumpingClock struct {
	clock.RealClock

	began time.Time
	ahead atomic.Int64 // nanoseconds by which the time of day has jumped
}

// NewJumpingClock returns a clock that has not jumped yet.
func NewJumpingClock() *JumpingClock { return &JumpingClock{began: time.Now()} }

// Jump sets the time of day forward, or back if d is negative.
func (c *JumpingClock) Jump(d time.Duration) { c.ahead.Add(int64(d)) }

// InBubble runs a test in a synctest bubble, in parallel with other tests.
func InBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// Bubble runs a subtest in a synctest bubble.
func Bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// Pause lets time pass in a synctest bubble, and waits until nothing moves any more.
func Pause(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in a bubble it takes no time
	synctest.Wait()
}

// EachJump runs a test with a jump by an hour forward and back, in parallel synctest bubbles.
func EachJump(t *testing.T, test func(t *testing.T, jump time.Duration)) {
	t.Helper()
	for name, jump := range map[string]time.Duration{"Forward": time.Hour, "Back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, jump) })
		})
	}
}

// Now returns what time.Now would.
func (c *JumpingClock) Now() time.Time {
	passed := time.Since(c.began)
	return reading(c.began.Add(passed+time.Duration(c.ahead.Load())), passed)
}

// Since returns what time.Since would.
func (c *JumpingClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// reading returns a time with both readings, which package time has no function for; times of a
// bubble have no monotonic one. The test of this package fails if the layout of time.Time changes.
//
//nolint:gosec // there is no other way, and the numbers are positive
func reading(day time.Time, monotonic time.Duration) time.Time {
	const hasMonotonic, nanosecondBits = 1 << 63, 30
	epoch := time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC)
	var t time.Time
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	fields.wall = hasMonotonic | uint64(day.Unix()-epoch.Unix())<<nanosecondBits | uint64(day.Nanosecond())
	fields.ext = int64(monotonic) + 1 // zero means none
	return t
}
