// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package relying

import "k8s.io/component-base/metrics"

// Metrics show for each directory whether it has the keys.
type Metrics struct{ drift *metrics.GaugeVec }

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "sacm_published_keys_drift",
		Help: "1 while a directory of published keys does not hold the keys of the ring, or cannot be read, else 0.",
	}, []string{"destination"})}
	mustRegister(m.drift)
	return m
}

func (m *Metrics) passed(destination string, err error) {
	drift := 0.0
	if err != nil {
		drift = 1
	}
	m.drift.WithLabelValues(destination).Set(drift)
}
