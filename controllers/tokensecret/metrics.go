// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import "k8s.io/component-base/metrics"

// Values of the labels below.
const (
	issuedFilled = "filled"
	issuedAuto   = "auto"

	deletedOrphan  = "orphan"
	deletedSurplus = "surplus"
)

// Metrics count what the controller has done. Success is not an Event, so this is
// where it shows.
type Metrics struct {
	issued       *metrics.CounterVec
	deleted      *metrics.CounterVec
	dereferenced *metrics.Counter

	filledByOthers *metrics.Counter
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		issued: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "sacm_legacy_tokens_issued_total",
			Help:           "Legacy tokens written, by kind: filled into a Secret that a user made, or auto for one made by this program.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"kind"}),
		deleted: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "sacm_token_secrets_deleted_total",
			Help:           "Token Secrets deleted, by reason: orphan if the account is gone, surplus if another one of ours is referenced.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"reason"}),
		dereferenced: metrics.NewCounter(&metrics.CounterOpts{
			Name:           "sacm_token_references_removed_total",
			Help:           "Entries removed from the secrets list of a ServiceAccount because their token Secret is deleted.",
			StabilityLevel: metrics.ALPHA,
		}),
		filledByOthers: metrics.NewCounter(&metrics.CounterOpts{
			Name:           "sacm_token_secrets_filled_by_others_total",
			Help:           "Token Secrets that the leader saw somebody else fill, with a token of another key than the active one.",
			StabilityLevel: metrics.ALPHA,
		}),
	}
	mustRegister(m.issued, m.deleted, m.dereferenced, m.filledByOthers)
	return m
}
