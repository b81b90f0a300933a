// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/series"
)

// Sources of an account.
const (
	sourceCache   = "cache"
	sourceLive    = "live"
	sourceCreated = "created"
	sourceAwaited = "awaited"
)

// Metrics are the metrics of the plugin.
type Metrics struct {
	lookups *metrics.CounterVec
	waiting *metrics.Gauge
}

// NewMetrics registers the metrics with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	return &Metrics{
		lookups: series.CounterVec(mustRegister, "sacm_admission_account_lookups_total",
			"Lookups of service accounts for Pods by source: cache if the cache has the account, otherwise each further step.", "source"),
		waiting: series.Gauge(mustRegister, "sacm_admission_waiters",
			"Requests that wait for a service account or a token to exist, or for kube-apiserver to return it."),
	}
}

func (m *Metrics) lookup(source string) { m.lookups.WithLabelValues(source).Inc() }
