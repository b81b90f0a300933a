// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sa-controller-manager/test/faults/checker"
)

// TestPlan wants every kind to come, however short the run is, and an equal seed to give an equal
// plan.
func TestPlan(t *testing.T) {
	t.Parallel()
	for seed, length := range map[uint64]time.Duration{1: time.Second, 2: 10 * time.Minute} {
		plan := Plan(seed, length, 2, Catalogue())
		if diff := cmp.Diff(plan, Plan(seed, length, 2, Catalogue())); diff != "" {
			t.Errorf("the same seed gives another plan:\n%s", diff)
		}
		if cmp.Equal(plan, Plan(seed+100, length, 2, Catalogue())) {
			t.Error("another seed gives the same plan")
		}
		checkPlan(t, plan)
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
		ends[fault.Lane] = fault.At + fault.For
		times[fault.Kind]++
	}
	for _, entry := range Catalogue() {
		if times[entry.Kind] == 0 {
			t.Errorf("%s never comes", entry.Kind)
		}
	}
}
