// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"runtime/debug"
	"testing"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/serving"
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

func TestStopTakesLessThanTenSeconds(t *testing.T) {
	t.Parallel()
	leading := max(options.New().Webhook.DrainDelay+callsTimeout, reconcile.DrainTimeout)
	if all := leading + max(reconcile.WatchStopTimeout, serving.DrainTimeout); all >= 10*time.Second {
		t.Errorf("a stop takes %s", all)
	}
}
