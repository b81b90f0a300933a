// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import "k8s.io/component-base/metrics"

// Metrics holds the state of the registration and the number of hosts without a replica. A nil
// Metrics is a no-op.
type Metrics struct {
	states *metrics.GaugeVec
	hosts  *metrics.Gauge
}

// NewMetrics registers the metrics with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		states: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_webhook_registration_state",
			Help: "State of the webhook registration, with --webhook-registration=url or service: 1 for the current state, 0 for " +
				"every other. On the leader it is starting, waiting, proving, repairing, registered, off or deleted; on other replicas idle.",
		}, []string{"state"}),
		hosts: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "sacm_webhook_hosts_without_replica",
			Help: "Hosts with a kube-apiserver but without a replica that it could call, with --webhook-registration=url, " +
				"on the leader; 0 on other replicas.",
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
