// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics reports when certificates expire. A nil Metrics is a no-op.
type Metrics struct {
	notAfter *metrics.GaugeVec
}

// NewMetrics registers the metrics with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{notAfter: metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "sacm_certificate_expiration_timestamp_seconds",
		Help: "Expiration of a certificate of the webhook, in seconds since 1970, by name: serving, serving-ca, " +
			"serving-ca-next during a rollover, and serving-ca-previous.",
	}, []string{"name"})}
	mustRegister(m.notAfter)
	return m
}

// show sets the metrics and deletes those of certificates that no longer exist.
func (m *Metrics) show(notAfter map[string]time.Time) {
	if m == nil {
		return
	}
	for _, name := range []string{nameServing, nameActiveCA, nameNextCA, namePreviousCA} {
		end, ok := notAfter[name]
		if !ok {
			m.notAfter.Delete(map[string]string{"name": name})
			continue
		}
		m.notAfter.WithLabelValues(name).Set(float64(end.Unix()))
	}
}
