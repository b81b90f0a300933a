// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"k8s.io/component-base/metrics"

	"sa-controller-manager/signing"
)

// Metrics show which keys are loaded and how their proofs went.
type Metrics struct {
	loaded *metrics.GaugeVec
	probes *metrics.CounterVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		loaded: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_signing_key",
			Help: "1 for each key of the ring, by key ID, algorithm and state: active signs, " +
				"next signs later, retired verifies only.",
		}, []string{"key_id", "algorithm", "state"}),
		probes: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "sacm_signing_key_probes_total",
			Help: "TokenReviews of probes of a signing key, by result: accepted, refused, or unknown if kube-apiserver did not answer.",
		}, []string{"result"}),
	}
	mustRegister(m.loaded, m.probes)
	return m
}

func (m *Metrics) keys(ring *signing.Ring) {
	m.loaded.Reset()
	for _, key := range ring.All() {
		if key.Role != signing.VerifyOnly {
			m.loaded.WithLabelValues(key.ID, key.Algorithm, string(key.Role)).Set(1)
		}
	}
}

func (m *Metrics) probed(err error) {
	result := "accepted"
	if err != nil {
		result = "unknown"
	}
	if IsRefusal(err) {
		result = "refused"
	}
	m.probes.WithLabelValues(result).Inc()
}
