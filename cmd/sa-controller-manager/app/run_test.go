// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"runtime/debug"
	"testing"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/serving"
	"sa-controller-manager/internal/testutil"
)

// TestSetGCPercent changes a setting of the whole process, so it runs alone.
func TestSetGCPercent(t *testing.T) {
	const before = 123
	for name, tc := range map[string]struct {
		gogc, limit string
		want        int
	}{"ByDefault": {want: heapGrowth}, "WithGOGC": {gogc: "100", want: before}, "WithGOMEMLIMIT": {limit: "64MiB", want: before}} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", tc.gogc)
			t.Setenv("GOMEMLIMIT", tc.limit)
			previous := debug.SetGCPercent(before)
			setGCPercent()
			testutil.Check(t, "percent", tc.want, debug.SetGCPercent(previous))
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

// TestWhileEarly: early parts stop last, and the end of one is the end of the process.
func TestWhileEarly(t *testing.T) {
	t.Parallel()
	var happened []string
	boom := errors.New("boom")
	until := func(ctx context.Context, what string, err error) error {
		<-ctx.Done()
		happened = append(happened, what)
		return err
	}
	m := &Manager{parts: []Part{{Phase: Early, Run: func(ctx context.Context) error { return until(ctx, "early", nil) }}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := m.whileEarly(ctx, func(ctx context.Context) error { return until(ctx, "work", boom) })
	if !errors.Is(err, boom) {
		t.Errorf("error %v, want that of the work", err)
	}
	m.parts[0].Run = func(context.Context) error { return boom }
	err = m.whileEarly(t.Context(), func(ctx context.Context) error { return until(ctx, "ended", nil) })
	if !errors.Is(err, boom) {
		t.Errorf("error %v, want that of the part", err)
	}
	testutil.Check(t, "order", []string{"work", "early", "ended"}, happened)
}
