// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"k8s.io/component-base/metrics"

	"sa-controller-manager/signing"
)

// Metrics show which keys are loaded and how their proofs went. A nil Metrics
// counts nothing.
type Metrics struct {
	loaded *metrics.GaugeVec
	probes *metrics.CounterVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		loaded: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name:           "sacm_signing_key",
			Help:           "1 for each key of the ring, by key ID, algorithm and state: active signs, candidate waits for the apiserver to accept it, next waits for its time, retired verifies only.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"key_id", "algorithm", "state"}),
		probes: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "sacm_signing_key_probes_total",
			Help:           "Token reviews that were to prove a signing key, by result: accepted, refused, or unknown if the apiserver could not be asked.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
	}
	mustRegister(m.loaded, m.probes)
	return m
}

func (m *Metrics) keys(ring *signing.Keyring) {
	if m == nil {
		return
	}
	m.loaded.Reset()
	active := ring.Active().Public()
	m.loaded.WithLabelValues(active.ID, active.Algorithm, "active").Set(1)
	if candidate := ring.Candidate(); candidate != nil {
		public := candidate.Public()
		m.loaded.WithLabelValues(public.ID, public.Algorithm, "candidate").Set(1)
	}
	if next := ring.Next(); next != nil {
		public := next.Public()
		m.loaded.WithLabelValues(public.ID, public.Algorithm, "next").Set(1)
	}
	for _, public := range ring.Retired() {
		m.loaded.WithLabelValues(public.ID, public.Algorithm, "retired").Set(1)
	}
}

func (m *Metrics) probed(err error) {
	if m == nil {
		return
	}
	result := "accepted"
	if err != nil {
		result = "unknown"
	}
	if IsRefusal(err) {
		result = "refused"
	}
	m.probes.WithLabelValues(result).Inc()
}
