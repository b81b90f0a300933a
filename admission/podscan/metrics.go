// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package podscan

import (
	"time"

	"k8s.io/component-base/metrics"
)

// Metrics are the metrics of the scan. A nil Metrics is a no-op.
type Metrics struct {
	pods *metrics.Gauge
	when *metrics.Gauge
}

// NewMetrics registers the metrics with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		pods: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "sacm_webhook_missed_pods",
			Help: "Pods found by the last scan that were admitted without their account or token.",
		}),
		when: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "sacm_webhook_missed_scan_timestamp_seconds",
			Help: "Time of the last completed scan for Pods that were admitted without the webhook, in seconds since 1970; 0: never.",
		}),
	}
	mustRegister(m.pods, m.when)
	return m
}

func (m *Metrics) scanned(missed int, now time.Time) {
	if m == nil {
		return
	}
	m.pods.Set(float64(missed))
	m.when.Set(float64(now.UnixNano()) / float64(time.Second))
}
