// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
		"quick":             {took: quick},
		"as slow as may be": {reason: "it is what is promised", took: append(slices.Clone(quick), slowest)},
		"one is slow":       {reason: "of a hundred none may be", took: append(slices.Clone(quick), slowest+time.Millisecond), found: 1},
		"one of two hundred is slow": {
			reason: "one in a hundred may be", took: append(slices.Concat(quick, quick, quick[:1]), time.Minute),
		},
		"nobody was answered":      {reason: "that is slow", found: 1},
		"slow beside others":       {reason: "nobody knows whose fault it is", took: []time.Duration{slowest + time.Millisecond}, others: 0.5, unsure: true},
		"slow where others may be": {reason: "it was said that nobody can know", took: []time.Duration{slowest + time.Millisecond}, busy: true, unsure: true},
		"quick beside others":      {reason: "all the better", took: quick, others: 0.5},
		"slow beside next to none": {took: []time.Duration{slowest + time.Millisecond}, others: 0.1, found: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var outcome Outcome
			err := judgeTimes(&outcome, 5, "Pod", tc.took, overloadResult{others: tc.others, busy: tc.busy})
			if len(outcome.Violations) != tc.found || (err != nil) != tc.unsure {
				t.Errorf("%s: %v and %v, want %d violations and an error: %v", tc.reason, outcome.Violations, err, tc.found, tc.unsure)
			}
		})
	}
}

// TestProcessorTime reads what the kernel writes.
func TestProcessorTime(t *testing.T) {
	t.Parallel()
	got, err := machineTime("cpu  10 2 30 400 50 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
	if diff := cmp.Diff(processorTime{all: 513, used: 50}, got, cmp.AllowUnexported(processorTime{})); diff != "" || err != nil {
		t.Errorf("%v, the machine's (-want +got):\n%s", err, diff)
	}
	for name, tc := range map[string]struct {
		stat string
		want int
	}{
		"itself":          {stat: "7 (faults) S 1 7 7 0 -1 0 0 0 0 0 1 20 300 4000 20 0", want: 4321},
		"a child":         {stat: "8 (a) b (c) S 7 8 8 0 -1 0 0 0 0 0 1 20 300 4000 20 0", want: 4321},
		"somebody":        {stat: "9 (etcd) S 1 9 9 0 -1 0 0 0 0 0 1 20 300 4000 20 0"},
		"somebody's name": {stat: "77 (7 (x) S 1 9 9 0 -1 0 0 0 0 0 1 20 300 4000 20 0"},
	} {
		if got, err := ownTime(tc.stat, 7); got != tc.want || err != nil {
			t.Errorf("%s: %d, %v; want %d", name, got, err, tc.want)
		}
	}
	for _, bad := range []string{"", "7 (faults) S 1", "intr 1 2 3 4 5 6 7 8 9"} {
		if _, err := machineTime(bad); err == nil {
			t.Errorf("machine %q: no error", bad)
		}
		if _, err := ownTime(bad, 7); err == nil {
			t.Errorf("process %q: no error", bad)
		}
	}
	before := processorTime{all: 1000, used: 500, own: 100}
	if got := (processorTime{all: 2000, used: 1000, own: 200}).othersSince(before); got != 0.4 {
		t.Errorf("others took %v, want 0.4", got)
	}
	if got := before.othersSince(before); got != 0 {
		t.Errorf("others took %v in no time", got)
	}
	now, err := readProcessorTime()
	if err != nil || now.all < now.used || now.used == 0 {
		t.Errorf("%+v, %v", now, err)
	}
}
