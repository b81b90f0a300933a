// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import "k8s.io/component-base/metrics"

// Metrics tells how many hosts lack a replica.
type Metrics struct{ hosts *metrics.Gauge }

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{hosts: metrics.NewGauge(&metrics.GaugeOpts{
		Name: "sacm_webhook_hosts_without_replica",
		Help: "Hosts on which a kube-apiserver runs and no replica that it could call, with --webhook-registration=url, " +
			"as the leader knows it; 0 on other replicas.",
		StabilityLevel: metrics.ALPHA,
	})}
	mustRegister(m.hosts)
	return m
}

// missing sets the number. A nil Metrics shows nothing.
func (m *Metrics) missing(hosts int) {
	if m != nil {
		m.hosts.Set(float64(hosts))
	}
}
