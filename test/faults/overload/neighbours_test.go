// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package overload

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestProcessorTime reads what the kernel writes.
func TestProcessorTime(t *testing.T) {
	t.Parallel()
	got, err := machineTime("cpu  10 2 30 400 50 6 7 8 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
	if diff := cmp.Diff(ProcessorTime{all: 513, used: 50}, got, cmp.AllowUnexported(ProcessorTime{})); diff != "" || err != nil {
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
	before := ProcessorTime{all: 1000, used: 500, own: 100}
	if got := (ProcessorTime{all: 2000, used: 1000, own: 200}).OthersSince(before); got != 0.4 {
		t.Errorf("others took %v, want 0.4", got)
	}
	now, err := ReadProcessorTime()
	if err != nil || now.all < now.used || now.used == 0 {
		t.Errorf("%+v, %v", now, err)
	}
}
