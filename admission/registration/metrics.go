// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import "k8s.io/component-base/metrics"

// Metrics holds the state of the registration and the number of hosts without a replica. A nil
// Metrics is a no-op.
type Metrics struct {
	states *metrics.GaugeVec
	hosts  *metrics.Gauge

	staticLoaded  *metrics.GaugeVec
	staticRepairs *metrics.Counter
	twice         *metrics.Gauge
}

// NewMetrics registers the metrics with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		states: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_webhook_registration_state",
			Help: "State of the webhook registration, unless --webhook-registration is none: 1 for the current state, 0 for " +
				"every other. On the leader it is starting, waiting, proving, repairing, registered, off or deleted; on other replicas idle. " +
				"With --webhook-registration=static it is starting, waiting, repairing or registered on every replica.",
		}, []string{"state"}),
		hosts: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "sacm_webhook_hosts_without_replica",
			Help: "Hosts with a kube-apiserver but without a replica that it could call, with --webhook-registration=url, " +
				"on the leader; 0 on other replicas.",
		}),
		staticLoaded: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_webhook_static_loaded",
			Help: "Whether kube-apiserver of this host has loaded our files, by its plugin, with --webhook-registration=static: 1 or 0.",
		}, []string{"plugin"}),
		staticRepairs: metrics.NewCounter(&metrics.CounterOpts{
			Name: "sacm_webhook_static_repairs_total",
			Help: "Number of files of the static registration that were written again because another process had changed or removed them.",
		}),
		twice: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "sacm_webhook_registered_twice",
			Help: "Whether kube-apiserver of this host calls the webhook by files and by configurations in the API, because the mode of " +
				"registration is changing: 1 or 0.",
		}),
	}
	mustRegister(m.states, m.hosts, m.staticLoaded, m.staticRepairs, m.twice)
	return m
}

func (m *Metrics) state(current State) {
	if m == nil {
		return
	}
	for _, state := range []State{Starting, Waiting, Proving, Repairing, Registered, Off, Deleted, Idle} {
		m.states.WithLabelValues(string(state)).Set(gauge(state == current))
	}
}

// missing sets the number of hosts.
func (m *Metrics) missing(hosts int) {
	if m != nil {
		m.hosts.Set(float64(hosts))
	}
}

// loaded records whether kube-apiserver has loaded the file of a kind.
func (m *Metrics) loaded(k kind, loaded bool) {
	if m == nil {
		return
	}
	m.staticLoaded.WithLabelValues(k.plugin()).Set(gauge(loaded))
}

func (m *Metrics) registeredTwice(twice bool) {
	if m != nil {
		m.twice.Set(gauge(twice))
	}
}

func gauge(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

func (m *Metrics) repaired() {
	if m != nil {
		m.staticRepairs.Inc()
	}
}
