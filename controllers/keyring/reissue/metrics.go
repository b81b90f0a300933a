// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/series"
)

// Metrics show the progress of re-issue.
type Metrics struct {
	reissues   *metrics.CounterVec
	secrets    *metrics.GaugeVec
	candidates *metrics.GaugeVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	return &Metrics{
		reissues: series.CounterVec(mustRegister, "sacm_token_reissues_total",
			"Token Secrets whose key is retired, by result: done, refused because the Secret is not "+
				"what it was taken for when it was read live, failed and tried again.", "result"),
		secrets: series.GaugeVec(mustRegister, "sacm_token_secrets_by_key",
			"Token Secrets that hold a token, by what the key that signed it is in the key ring: active, next, retired, "+
				"unknown, or none if the token has no key ID.", "state"),
		candidates: series.GaugeVec(mustRegister, "sacm_token_reissue_secrets",
			"Token Secrets whose key is retired, by the state of their re-issue and, if it is blocked, the reason.", "state", "reason"),
	}
}

func (m *Metrics) reissued(result string) {
	m.reissues.WithLabelValues(result).Inc()
}

// survey replaces the counts of the previous survey.
func (m *Metrics) survey(byKey map[string]int, byProgress map[Progress]int) {
	for _, state := range []string{"active", "next", "retired", "unknown", "none"} {
		m.secrets.WithLabelValues(state).Set(float64(byKey[state]))
	}
	for _, progress := range allProgress() {
		m.candidates.WithLabelValues(string(progress.State), string(progress.Reason)).Set(float64(byProgress[progress]))
	}
}

// end removes the counts of the last survey, because another process may lead now.
func (m *Metrics) end() {
	m.secrets.Reset()
	m.candidates.Reset()
}
