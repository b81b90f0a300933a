// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package relying

import (
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/series"
)

// Metrics show for each directory whether it has the keys.
type Metrics struct{ drift *metrics.GaugeVec }

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	return &Metrics{series.GaugeVec(mustRegister, "sacm_published_keys_drift",
		"1 while a directory of published keys does not hold the keys of the ring, or cannot be read, else 0.", "destination")}
}

func (m *Metrics) passed(destination string, err error) {
	m.drift.WithLabelValues(destination).Set(series.Bool(err != nil))
}
