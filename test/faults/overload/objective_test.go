// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package overload

import (
	"slices"
	"testing"
	"time"

	"sa-controller-manager/test/faults/checker"
)

// TestJudgeTimes wants the slow to be told from those whom others have slowed down.
func TestJudgeTimes(t *testing.T) {
	t.Parallel()
	quick := slices.Repeat([]time.Duration{time.Millisecond}, 99)
	cases := map[string]struct {
		reason string
		took   []time.Duration
		others float64
		busy   bool
		found  int
		unsure bool
	}{
		"one is slow":         {reason: "of a hundred none may be", took: append(slices.Clone(quick), slowest+time.Millisecond), found: 1},
		"nobody was answered": {reason: "that is slow", found: 1},
		"slow beside others": {
			reason: "nobody knows whose fault it is", took: []time.Duration{slowest + time.Millisecond}, others: 0.5, unsure: true,
		},
		"slow where others may be": {
			reason: "it was said that nobody can know", took: []time.Duration{slowest + time.Millisecond}, busy: true, unsure: true,
		},
		"slow beside next to none": {took: []time.Duration{slowest + time.Millisecond}, others: 0.1, found: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var outcome checker.Outcome
			err := JudgeTimes(&outcome, 5, "Pod", tc.took, Result{others: tc.others, busy: tc.busy})
			if len(outcome.Violations) != tc.found || (err != nil) != tc.unsure {
				t.Errorf("%s: %v and %v, want %d violations and an error: %v", tc.reason, outcome.Violations, err, tc.found, tc.unsure)
			}
		})
	}
}
