// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keypublisher

import "k8s.io/component-base/metrics"

// Metrics show for each directory whether it has the keys.
type Metrics struct {
	drift       *metrics.GaugeVec
	lastSuccess *metrics.GaugeVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		drift: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_published_keys_drift",
			Help: "1 while a directory of --publish-keys does not hold the keys of the ring, or cannot be read, else 0.",
		}, []string{"destination"}),
		lastSuccess: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_published_keys_last_success_timestamp_seconds",
			Help: "When a directory of --publish-keys held the keys of the ring last, in seconds since 1970.",
		}, []string{"destination"}),
	}
	mustRegister(m.drift, m.lastSuccess)
	return m
}

func (m *Metrics) passed(destination string, err error) {
	if err != nil {
		m.drift.WithLabelValues(destination).Set(1)
		return
	}
	m.drift.WithLabelValues(destination).Set(0)
	m.lastSuccess.WithLabelValues(destination).SetToCurrentTime()
}
