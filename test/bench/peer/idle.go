// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"

	"sa-controller-manager/test/bench/idle"
	"sa-controller-manager/test/bench/result"
)

// Idle is h: what both cost while nothing happens, side by side. Its repetitions are
// windows that follow each other.
func (o *Options) Idle(ctx context.Context) error {
	costs, err := idle.Measure(ctx, idle.Options{
		Binary: o.Binary, Objects: o.Namespaces, Settling: o.Settling, Window: o.Window, Windows: o.Repetitions,
		Tell: func(text string) { o.Progress.Statusf("h, %s", text) },
	})
	if err != nil {
		return err
	}
	for _, cost := range costs {
		key := func(metric, unit string) result.Key {
			return result.Key{Scenario: "h", Metric: metric, Unit: unit, Program: cost.Program}
		}
		o.add(key("CPU a minute", "s"), cost.CPU)
		o.add(key("requests a minute", ""), cost.Requests)
		o.add(key("memory, RssAnon", "MiB"), cost.RSSAnon)
	}
	return nil
}
