// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"k8s.io/component-base/metrics"

	"sa-controller-manager/internal/series"
)

// Metrics are of each signer, by key ID.
type Metrics struct {
	up, unpinned *metrics.GaugeVec
	took         *metrics.HistogramVec
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	return &Metrics{
		up: series.GaugeVec(mustRegister, "sacm_backend_up",
			"1 if the process that has an active or next key (kep740:NAME) signs with it, 0 while it does not, by key ID.", "key_id"),
		unpinned: series.GaugeVec(mustRegister, "sacm_backend_unpinned_keys",
			"Number of keys that the process which has a signing key lists and the key ring does not have, by ID of the pinned key.",
			"key_id"),
		took: series.HistogramVec(mustRegister, "sacm_backend_sign_seconds",
			"How long calls of the process that has a signing key took, also those that failed, by key ID.",
			[]float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2}, "key_id"),
	}
}

// forget ends the series of a key that signs no more.
func (m *Metrics) forget(keyID string) {
	of := map[string]string{"key_id": keyID}
	m.up.Delete(of)
	m.unpinned.Delete(of)
	m.took.Delete(of)
}
