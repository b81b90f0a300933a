// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/series"
)

// Metrics holds the state of the registration.
type Metrics struct {
	states       *metrics.GaugeVec
	staticLoaded *metrics.GaugeVec
	repairs      *metrics.Counter
}

// NewMetrics registers the metrics with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	return &Metrics{
		states: series.GaugeVec(mustRegister, "sacm_webhook_registration_state",
			"State of the webhook registration, if there is one: 1 for the current state, 0 for every other. On the leader it is "+
				"starting, waiting, proving, repairing, registered, unreachable, unknown or off; "+
				"on other replicas idle. With files of the host every replica has all of them but idle.", "state"),
		staticLoaded: series.GaugeVec(mustRegister, "sacm_webhook_static_loaded", // without labels, and so absent otherwise
			"Whether kube-apiserver of this host has loaded our files and calls this process by them: 1 or 0."),
		repairs: series.Counter(mustRegister, "sacm_webhook_registration_repairs_total",
			"Number of times that another client had changed or deleted the registration, or a file of it."),
	}
}

func (m *Metrics) state(current State) {
	for _, state := range states() {
		m.states.WithLabelValues(string(state)).Set(series.Bool(state == current))
	}
}

// loaded records whether kube-apiserver has loaded the files, and calls us.
func (m *Metrics) loaded(loaded bool) {
	m.staticLoaded.WithLabelValues().Set(series.Bool(loaded))
}
