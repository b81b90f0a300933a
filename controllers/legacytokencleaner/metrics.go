// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"time"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/series"
)

// Metrics show the results of runs and why a run is idle.
type Metrics struct {
	marked, removed metrics.CounterMetric
	secrets         *metrics.GaugeVec
	idle            *metrics.GaugeVec
	finished        *metrics.Gauge
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	done := series.CounterVec(mustRegister, "sacm_legacy_token_cleanups_total",
		"Unused legacy tokens, by action: marked invalid, or deleted with their Secret.", "action")
	return &Metrics{
		marked: done.WithLabelValues("marked"), removed: done.WithLabelValues("deleted"),
		secrets: series.GaugeVec(mustRegister, "sacm_legacy_token_cleaner_secrets",
			"Token Secrets by the decision of the last run: mark, delete, or the reason to keep them. "+
				"In a dry run, the decision that would be carried out.", "decision"),
		idle: series.GaugeVec(mustRegister, "sacm_legacy_token_cleaner_idle",
			"1 for the reason why the last run was idle, 0 for all others.", "reason"),
		finished: series.Gauge(mustRegister, "sacm_legacy_token_cleaner_last_run_timestamp_seconds",
			"End of the last run, idle or not, in seconds since 1970; 0 if there was none."),
	}
}

// begin resets the decisions of the previous run.
func (m *Metrics) begin(why idleness) {
	m.secrets.Reset()
	for _, reason := range []idleness{trackingAbsent, trackingInvalid, trackingShort, clockWrong} {
		m.idle.WithLabelValues(string(reason)).Set(series.Bool(reason == why))
	}
}

func (m *Metrics) decided(outcome decision) { m.secrets.WithLabelValues(string(outcome)).Inc() }

func (m *Metrics) finish(at time.Time) { m.finished.Set(float64(at.Unix())) }

// end resets the last run: another process may lead now and show its own.
func (m *Metrics) end() {
	m.secrets.Reset()
	m.idle.Reset()
}
