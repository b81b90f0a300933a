// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"time"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/series"
)

// Metrics reports when certificates expire. A nil Metrics is a no-op.
type Metrics struct {
	notAfter *metrics.GaugeVec
}

// NewMetrics registers the metrics with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	return &Metrics{notAfter: series.GaugeVec(mustRegister, "sacm_certificate_expiration_timestamp_seconds",
		"Expiration of a certificate of the webhook, in seconds since 1970, by name: serving, and serving-ca unless it is "+
			"from files.", "name")}
}

func (m *Metrics) show(name string, end time.Time) {
	if m != nil && !end.IsZero() {
		m.notAfter.WithLabelValues(name).Set(float64(end.Unix()))
	}
}
