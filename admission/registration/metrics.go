// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import "k8s.io/component-base/metrics"

// Metrics says how far the registration is and how many hosts lack a replica. A nil Metrics
// shows nothing.
type Metrics struct {
	states *metrics.GaugeVec
	hosts  *metrics.Gauge
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		states: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_webhook_registration_state",
			Help: "How far the registration of the webhook is, with --webhook-registration=url or service: 1 for the state it is in, 0 for " +
				"each other one. The leader has starting, waiting, proving, repairing, registered, off and deleted; another replica is idle.",
		}, []string{"state"}),
		hosts: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "sacm_webhook_hosts_without_replica",
			Help: "Hosts on which a kube-apiserver runs and no replica that it could call, with --webhook-registration=url, " +
				"as the leader knows it; 0 on other replicas.",
		}),
	}
	mustRegister(m.states, m.hosts)
	return m
}

func (m *Metrics) state(current State) {
	if m == nil {
		return
	}
	for _, state := range []State{Starting, Waiting, Proving, Repairing, Registered, Off, Deleted, Idle} {
		value := 0.0
		if state == current {
			value = 1
		}
		m.states.WithLabelValues(string(state)).Set(value)
	}
}

// missing sets the number of hosts.
func (m *Metrics) missing(hosts int) {
	if m != nil {
		m.hosts.Set(float64(hosts))
	}
}
