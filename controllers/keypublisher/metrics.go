// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keypublisher

import "k8s.io/component-base/metrics"

// Metrics show for each destination whether it has the keys.
type Metrics struct {
	drift       *metrics.GaugeVec
	lastSuccess *metrics.GaugeVec
	foreignKeys *metrics.CounterVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		drift: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_published_keys_drift",
			Help: "1 while a destination of --publish-keys does not hold the keys of the ring, or cannot be asked, else 0.",
		}, []string{"destination"}),
		lastSuccess: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_published_keys_last_success_timestamp_seconds",
			Help: "When a destination of --publish-keys held the keys of the ring last, in seconds since 1970.",
		}, []string{"destination"}),
		foreignKeys: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "sacm_published_foreign_keys_total",
			Help: "Keys found at a destination of --publish-keys that the ring never had, by key ID. They were removed.",
		}, []string{"destination", "key_id"}),
	}
	mustRegister(m.drift, m.lastSuccess, m.foreignKeys)
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

func (m *Metrics) foreign(destination, id string) {
	m.foreignKeys.WithLabelValues(destination, id).Inc()
}

func (m *Metrics) forget(destination string) {
	m.drift.DeleteLabelValues(destination)
	m.lastSuccess.DeleteLabelValues(destination)
}
