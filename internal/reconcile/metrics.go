// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/series"
)

// Metrics are the series that all queues share. Queue depth, latency and retries
// are workqueue_* series, which client-go feeds by itself.
type Metrics struct {
	stuck *metrics.GaugeVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	return &Metrics{stuck: series.GaugeVec(mustRegister, "sacm_stuck_keys",
		"Keys of a queue that keep failing and had to wait ten seconds or more for a retry. They are still retried.", "name")}
}

// stuckGauge shows zero from the start, so that an alert can tell "none" from
// "not measured". A nil Metrics counts nothing.
func (m *Metrics) stuckGauge(name string) func(int) {
	if m == nil {
		return func(int) {}
	}
	gauge := m.stuck.WithLabelValues(name)
	gauge.Set(0)
	return func(n int) { gauge.Set(float64(n)) }
}
