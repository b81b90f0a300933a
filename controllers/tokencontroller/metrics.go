// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

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

// Metrics count what the controller has done: success is not an Event.
type Metrics struct {
	issued       *metrics.CounterVec
	deleted      *metrics.Counter
	dereferenced *metrics.Counter
	undone       *metrics.Counter

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
		undone: metrics.NewCounter(&metrics.CounterOpts{
			Name: "sacm_token_secrets_deleted_by_others_total",
			Help: "Token Secrets made by this program for an account soon after another client had deleted the previous one.",
		}),
		filledByOthers: metrics.NewCounter(&metrics.CounterOpts{
			Name: "sacm_token_secrets_filled_by_others_total",
			Help: "Token Secrets that another process filled while the leader watched, with a token of another key than the active one.",
		}),
	}
	mustRegister(m.issued, m.deleted, m.dereferenced, m.undone, m.filledByOthers)
	return m
}

// countSecondController counts a harmful change of a Secret by a second token controller, such as
// that of kube-controller-manager: with two keys either may sign a token, and two root CAs replace
// each other without end.
//
// Only changes count. The content of a Secret at first sight may be from before a takeover, and a
// Secret that is created with a token may be a user's, or restored. A user may also cause one such
// change, and so does a token that this process has signed just before its key was retired:
// alerts need more than one.
func (c *Controller) countSecondController(before, after *tokensecrets.TokenSecret) {
	if before.UID != after.UID || before.Terminating() {
		return
	}
	if filledByOther(before, after, c.Keys.Ring().ActiveID()) {
		c.Metrics.filledByOthers.Inc()
	}
	if ca, _ := c.RootCA.Current(); ca.Replaced(before.CAHash, after.CAHash) {
		c.RootCAMetrics.Replaced(corev1.ResourceSecrets)
	}
}

// filledByOther reports whether a Secret that this process fills got a token of another key.
func filledByOther(before, after *tokensecrets.TokenSecret, activeKey string) bool {
	fillable := before.Token == nil && before.AccountName != "" && !before.InvalidSince() && !before.Immutable
	return fillable && after.Token != nil && after.Token.KeyID() != "" && after.Token.KeyID() != activeKey
}
