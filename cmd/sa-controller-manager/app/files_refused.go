// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"k8s.io/component-base/metrics"
)

// refusedGauges tell of each flag how many of its files hold at this moment what was refused.
// The counters of fileMetrics cannot say that it is over: that the content in use came back is
// no reload.
func (f *files) refusedGauges() []metrics.GaugeFunc {
	var gauges []metrics.GaugeFunc
	add := func(flag string, refusals ...func() error) {
		gauges = append(gauges, metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Name:           "sacm_file_refused",
			Help:           "Files of a flag whose content was refused, so that a former one is in use.",
			ConstLabels:    map[string]string{"flag": flag},
			StabilityLevel: metrics.ALPHA,
		}, func() float64 { return float64(countErrors(refusals)) }))
	}
	if f.store != nil {
		add(f.keys.Flag, func() error { return f.store.Status().Refused })
	}
	if len(f.verifyKeys) > 0 {
		var refusals []func() error
		for _, file := range f.verifyKeys {
			refusals = append(refusals, file.Refused)
		}
		add("service-account-key-file", refusals...)
	}
	if f.rootCA != nil {
		add("root-ca-file", f.rootCA.Refused)
	}
	return gauges
}

func countErrors(of []func() error) int {
	count := 0
	for _, err := range of {
		if err() != nil {
			count++
		}
	}
	return count
}
