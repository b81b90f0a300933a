// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics tells when certificates expire.
type Metrics struct {
	notAfter *metrics.GaugeVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{notAfter: metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "sacm_certificate_expiration_timestamp_seconds",
		Help: "When a certificate of the webhook expires, in seconds since 1970, by name: serving, serving-ca, " +
			"serving-ca-next while a rollover is under way, and serving-ca-previous.",
	}, []string{"name"})}
	mustRegister(m.notAfter)
	return m
}

// show leaves no series of a certificate that is gone. A nil Metrics shows nothing.
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
