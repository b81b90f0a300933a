// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rival

import "k8s.io/component-base/metrics"

// Metrics show whether there is a rival.
type Metrics struct {
	seen *metrics.Gauge
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{seen: metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "sacm_second_token_controller",
		Help:           "1 on the leader while a second token controller was seen at work within the last hour.",
		StabilityLevel: metrics.ALPHA,
	})}
	mustRegister(m.seen)
	return m
}
