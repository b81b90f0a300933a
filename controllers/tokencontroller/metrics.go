// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/series"
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
	return &Metrics{
		issued: series.CounterVec(mustRegister, "sacm_legacy_tokens_issued_total",
			"Legacy tokens written, by kind: filled into a Secret that a user made, or auto for one made by this program.", "kind"),
		deleted: series.Counter(mustRegister, "sacm_token_secrets_deleted_total",
			"Token Secrets deleted because their account is gone."),
		dereferenced: series.Counter(mustRegister, "sacm_token_references_removed_total",
			"Entries removed from the secrets list of a ServiceAccount because their token Secret is deleted."),
		undone: series.Counter(mustRegister, "sacm_token_secrets_deleted_by_others_total",
			"Token Secrets made by this program for an account soon after another client had deleted the previous one."),
		filledByOthers: series.Counter(mustRegister, "sacm_token_secrets_filled_by_others_total",
			"Token Secrets that another process filled while the leader watched, with a token of another key than the active one."),
	}
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
