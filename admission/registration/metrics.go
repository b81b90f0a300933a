// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import "k8s.io/component-base/metrics"

// Metrics holds the state of the registration.
type Metrics struct {
	states       *metrics.GaugeVec
	staticLoaded *metrics.GaugeVec
	repairs      *metrics.Counter
}

// NewMetrics registers the metrics with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		states: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_webhook_registration_state",
			Help: "State of the webhook registration, if there is one: 1 for the current state, 0 for " +
				"every other. On the leader it is starting, waiting, proving, repairing, registered, unreachable, unknown or off; " +
				"on other replicas idle. With files of the host every replica has all of them but idle.",
		}, []string{"state"}),
		staticLoaded: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "sacm_webhook_static_loaded",
			Help: "Whether kube-apiserver of this host has loaded our files and calls this process by them: 1 or 0.",
		}, nil), // without labels, and so absent otherwise
		repairs: metrics.NewCounter(&metrics.CounterOpts{
			Name: "sacm_webhook_registration_repairs_total",
			Help: "Number of times that another client had changed or deleted the registration, or a file of it.",
		}),
	}
	mustRegister(m.states, m.staticLoaded, m.repairs)
	return m
}

// unregistered is for NewMetrics without a registry: they show nothing.
func unregistered(...metrics.Registerable) {}

func (m *Metrics) state(current State) {
	for _, state := range states() {
		m.states.WithLabelValues(string(state)).Set(gauge(state == current))
	}
}

// loaded records whether kube-apiserver has loaded the files, and calls us.
func (m *Metrics) loaded(loaded bool) {
	m.staticLoaded.WithLabelValues().Set(gauge(loaded))
}

func gauge(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
