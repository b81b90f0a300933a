// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testclock is a clock for tests whose time of day jumps as that of a machine does,
// when somebody sets it or it is corrected from the network.
//
// A machine has two clocks, and time.Now reads both. The time of day jumps. The other one
// runs evenly: timers go by it, and so does the difference of two readings (package time,
// "Monotonic Clocks"). A fake clock has the time of day alone, so that a jump of it is the
// same as time that passes. This one has both. Time passes as the test's own does, which in
// a synctest bubble is by time.Sleep, and jumps by Jump.
//
// Nothing but tests may import this package.
package testclock

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"k8s.io/utils/clock"
)

// Jumping is the clock. Its timers are those of package time. It may be used from any
// goroutine, of one bubble if it was made in one.
type Jumping struct {
	clock.RealClock

	began time.Time
	ahead atomic.Int64 // the time of day, of what it would be without a jump, in nanoseconds
}

// New is a clock that has not jumped yet.
func New() *Jumping { return &Jumping{began: time.Now()} }

// Jump sets the time of day forward, or back if d is negative.
func (c *Jumping) Jump(d time.Duration) { c.ahead.Add(int64(d)) }

// EachHour runs a test for either jump by an hour, each in a bubble of its own and in parallel.
func EachHour(t *testing.T, test func(t *testing.T, jump time.Duration)) {
	t.Helper()
	for name, jump := range map[string]time.Duration{"Forward": time.Hour, "Back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, jump) })
		})
	}
}

// Now is what time.Now would be.
func (c *Jumping) Now() time.Time {
	passed := time.Since(c.began)
	return reading(c.began.Add(passed+time.Duration(c.ahead.Load())), passed)
}

// Since is what time.Since would be.
func (c *Jumping) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// reading is a time with both readings, which package time makes for nobody else. A bubble's
// have no even one. The test of this package notices if a time.Time is laid out otherwise.
//
//nolint:gosec // that is the only way, and the numbers are positive
func reading(day time.Time, even time.Duration) time.Time {
	const hasEven, nanosecondBits = 1 << 63, 30
	epoch := time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC)
	var t time.Time
	fields := (*struct {
		wall uint64
		ext  int64
		loc  *time.Location
	})(unsafe.Pointer(&t))
	fields.wall = hasEven | uint64(day.Unix()-epoch.Unix())<<nanosecondBits | uint64(day.Nanosecond())
	fields.ext = int64(even) + 1 // zero is none
	return t
}
