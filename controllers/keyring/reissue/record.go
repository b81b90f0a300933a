// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package reissue

import (
	"fmt"

	"sa-controller-manager/controllers/tokensecrets"
)

// Reasons of the Events. Each regards the Secret whose key is retired.
const (
	reasonReplaced    = "TokenSecretReplaced"
	reasonUnverified  = "TokenNotReissued"
	reasonUnknownMode = "UnknownReissueMode"
	reasonElsewhere   = "SecondTokenController"
	reasonDiscarded   = "TokenSecretDiscarded"
)

func (c *Controller) recordReplaced(secret *tokensecrets.TokenSecret, successor string) {
	c.Recorder.Normal(secret.Reference(), reasonReplaced, fmt.Sprintf(
		"the key of the token is retired: Secret %q replaces this one for ServiceAccount %q; this token stays valid and is taken out of "+
			"service once nobody uses it", successor, secret.AccountName))
}

func (c *Controller) recordUnverified(secret *tokensecrets.TokenSecret, err error) {
	c.Recorder.Warn(secret.Reference(), reasonUnverified, fmt.Sprintf(
		"data.token names a retired key and was not signed with it, so it is not issued again: %v", err))
}

func (c *Controller) warnBlocked(candidate Candidate) {
	about := candidate.Secret.Reference()
	if candidate.Reason == FilledElsewhere {
		c.Recorder.Warn(about, reasonElsewhere,
			"the Secret was made to replace one whose key is retired, and was filled with that same key: "+
				"another token controller is at work, disable it and delete this Secret")
		return
	}
	c.Recorder.Warn(about, reasonUnknownMode, fmt.Sprintf(
		"the key of the token is retired, and nothing is done about it: the annotation %s must be %q or %q",
		tokensecrets.ReissueAnnotation, modeSideBySide, modeNever))
}
