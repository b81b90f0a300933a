// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external

import (
	"time"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/series"
)

// Metrics count calls by how they ended. A nil Metrics counts nothing.
type Metrics struct {
	requests *metrics.CounterVec
	duration *metrics.HistogramVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	return &Metrics{
		requests: series.CounterVec(mustRegister, "sacm_external_signer_requests_total",
			"Calls to the external signer socket by method and outcome: ok; refused as stranger, malformed, issuer, subject, "+
				"audience, lifetime or legacy; or rate, connections, key_blocked, backend, error, and canceled if the caller did not wait.",
			"method", "outcome"),
		duration: series.HistogramVec(mustRegister, "sacm_external_signer_request_duration_seconds",
			"How long calls to the external signer socket took, with the wait for a slot of the rate limit.",
			// An ECDSA signature takes 50 us, one of RSA 4096 6 ms; the rest is waiting.
			[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}, "method"),
	}
}

func (m *Metrics) observe(method, outcome string, took time.Duration) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(method, outcome).Inc()
	m.duration.WithLabelValues(method).Observe(took.Seconds())
}
