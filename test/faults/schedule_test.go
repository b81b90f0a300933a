// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/test/faults/checker"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		seed   uint64
		length time.Duration
	}{
		"Short":     {reason: "every kind comes all the same", seed: 1, length: time.Second},
		"Minute":    {seed: 2, length: time.Minute},
		"TenMinute": {seed: 3, length: 10 * time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := Plan(tc.seed, tc.length, 2, Catalogue())
			if diff := cmp.Diff(plan, Plan(tc.seed, tc.length, 2, Catalogue())); diff != "" {
				t.Errorf("the same seed gives another plan:\n%s", diff)
			}
			if cmp.Equal(plan, Plan(tc.seed+100, tc.length, 2, Catalogue())) {
				t.Error("another seed gives the same plan")
			}
			checkPlan(t, plan)
		})
	}
}

// checkPlan holds a plan to what Plan promises.
func checkPlan(t *testing.T, plan []Planned) {
	t.Helper()
	ends := map[Lane]time.Duration{}
	times := map[checker.Kind]int{}
	for _, fault := range plan {
		if fault.At < ends[fault.Lane]+breather {
			t.Errorf("%v: its lane is still at the one before, until %v", fault, ends[fault.Lane])
		}
		if fault.Lane == Registration {
			for lane, end := range ends {
				if lane != Registration && fault.At < end {
					t.Errorf("%v: %s goes on until %v", fault, lane, end)
				}
			}
		}
		if fault.Replica < 0 || fault.Replica > 1 {
			t.Errorf("%v: there is no such replica", fault)
		}
		ends[fault.Lane] = fault.At + fault.For
		times[fault.Kind]++
	}
	for _, entry := range Catalogue() {
		if times[entry.Kind] == 0 {
			t.Errorf("%s never comes", entry.Kind)
		}
	}
}

// TestPlanIsStable has a seed of an old report mean the same run for as long as the
// catalogue is the same.
func TestPlanIsStable(t *testing.T) {
	t.Parallel()
	catalogue := []Entry{
		{Kind: "a", Lane: Processes, For: time.Second}, {Kind: "b", Lane: Processes, For: 2 * time.Second},
		{Kind: "c", Lane: Registration, For: time.Second},
	}
	var got []checker.Kind
	for _, fault := range Plan(7, 10*time.Second, 2, catalogue) {
		got = append(got, fault.Kind)
	}
	if diff := cmp.Diff([]checker.Kind{"a", "b", "a", "b", "c", "c"}, got); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}
