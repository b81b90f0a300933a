// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/controllers/tokensecrets"
)

// countSecondController counts a change of a Secret that a second token controller made, such
// as that of kube-controller-manager, if it does harm: two keys make it a lottery which of
// them signs a token, and two root CAs undo each other for ever.
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
