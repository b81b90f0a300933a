// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/controllers/tokensecrets"
)

// Values of the labels below.
const (
	issuedFilled = "filled"
	issuedAuto   = "auto"
)

// Metrics count what the controller has done. Success is not an Event, so this is
// where it shows.
type Metrics struct {
	issued       *metrics.CounterVec
	deleted      *metrics.Counter
	dereferenced *metrics.Counter

	filledByOthers *metrics.Counter
}

// NewMetrics registers the series with mustRegister, such as legacyregistry.MustRegister.
func NewMetrics(mustRegister func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		issued: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "sacm_legacy_tokens_issued_total",
			Help: "Legacy tokens written, by kind: filled into a Secret that a user made, or auto for one made by this program.",
		}, []string{"kind"}),
		deleted: metrics.NewCounter(&metrics.CounterOpts{
			Name: "sacm_token_secrets_deleted_total",
			Help: "Token Secrets deleted because their account is gone.",
		}),
		dereferenced: metrics.NewCounter(&metrics.CounterOpts{
			Name: "sacm_token_references_removed_total",
			Help: "Entries removed from the secrets list of a ServiceAccount because their token Secret is deleted.",
		}),
		filledByOthers: metrics.NewCounter(&metrics.CounterOpts{
			Name: "sacm_token_secrets_filled_by_others_total",
			Help: "Token Secrets that the leader saw somebody else fill, with a token of another key than the active one.",
		}),
	}
	mustRegister(m.issued, m.deleted, m.dereferenced, m.filledByOthers)
	return m
}

// countSecondController counts a change of a Secret that a second token controller made, such
// as that of kube-controller-manager, if it does harm: two keys make it a lottery which of
// them signs a token, and two root CAs undo each other without end.
//
// It goes by what was seen to change. What a Secret holds when it is first seen may be from
// before a takeover, and one that is created with a token may be a user's, or restored. Still
// a user may do the same once, and a token that this process has signed just before its key
// was retired counts, too: alerts need more than one.
func (c *Controller) countSecondController(before, after *tokensecrets.TokenSecret) {
	if before.UID != after.UID || before.Terminating() {
		return
	}
	if filledByOther(before, after, c.Keys.Ring().ActiveID()) {
		c.Metrics.filledByOthers.Inc()
	}
	if c.RootCA.Current().Replaced(before.CAHash, after.CAHash) {
		c.RootCAMetrics.Replaced(corev1.ResourceSecrets)
	}
}

// filledByOther reports whether a Secret that this process fills got a token of another key.
func filledByOther(before, after *tokensecrets.TokenSecret, activeKey string) bool {
	fillable := before.Token == nil && before.AccountName != "" && !before.InvalidSince() && !before.Immutable
	return fillable && after.Token != nil && after.Token.KeyID() != "" && after.Token.KeyID() != activeKey
}
