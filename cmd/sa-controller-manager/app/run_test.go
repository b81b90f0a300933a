// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"runtime/debug"
	"testing"
)

// TestSetGCPercent changes a setting of the whole process, so it runs alone.
func TestSetGCPercent(t *testing.T) {
	const before = 123
	cases := map[string]struct {
		gogc, limit string
		want        int
	}{
		"ByDefault":      {want: heapGrowth},
		"WithGOGC":       {gogc: "100", want: before},
		"WithGOMEMLIMIT": {limit: "64MiB", want: before},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", tc.gogc)
			t.Setenv("GOMEMLIMIT", tc.limit)
			previous := debug.SetGCPercent(before)
			setGCPercent()
			if got := debug.SetGCPercent(previous); got != tc.want {
				t.Errorf("got %d%%, want %d%%", got, tc.want)
			}
		})
	}
}
