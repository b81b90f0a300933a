// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package legacytokencleaner

import (
	"fmt"

	"sa-controller-manager/controllers/tokensecrets"
)

// Reasons of the Events. Each regards the Secret, and stays when that is gone.
const (
	reasonMarked      = "LegacyTokenMarkedInvalid"
	reasonRemoved     = "LegacyTokenDeleted"
	reasonWouldMark   = "LegacyTokenWouldBeMarked"
	reasonWouldRemove = "LegacyTokenWouldBeDeleted"
	reasonTried       = "InvalidLegacyTokenTried"
)

// optOutHint says how to keep the Secret.
const optOutHint = "; the annotation " + tokensecrets.KeepAnnotation + "=true keeps the Secret"

func (c *Controller) recordMarked(o observed) {
	secret, period := o.secret, c.run.horizon.period
	unused := fmt.Sprintf("the token of ServiceAccount %q was not used for %v (last use: %s)", secret.AccountName, period, lastUse(secret))
	if o.successor != nil {
		unused = fmt.Sprintf("replaced by Secret %q; ", o.successor.Name) + unused
	}
	if c.DryRun {
		c.Recorder.Normal(secret.Reference(), reasonWouldMark, unused+
			", and no Pod uses the Secret: it would be marked invalid, but for the dry run"+optOutHint)
		return
	}
	c.Recorder.Normal(secret.Reference(), reasonMarked, unused+fmt.Sprintf(
		", and no Pod uses the Secret: kube-apiserver refuses the token from now on, and the Secret is deleted after another %v; "+
			"removing the label %s brings the token back", period, tokensecrets.InvalidSinceLabel)+optOutHint)
}

func (c *Controller) recordWouldRemove(secret *tokensecrets.TokenSecret, invalid string) {
	c.Recorder.Normal(secret.Reference(), reasonWouldRemove, invalid+": the Secret would be deleted, but for the dry run"+optOutHint)
}

func (c *Controller) recordTried(secret *tokensecrets.TokenSecret) {
	c.Recorder.Warn(secret.Reference(), reasonTried, fmt.Sprintf(
		"a client still uses the token of ServiceAccount %q, which has been invalid since %s, and was refused on %s: "+
			"give it another token, or remove the label %s", secret.AccountName,
		secret.Labels[tokensecrets.InvalidSinceLabel], lastUse(secret), tokensecrets.InvalidSinceLabel)+optOutHint)
}

// lastUse returns the day of the last tracked use.
func lastUse(secret *tokensecrets.TokenSecret) string {
	if date, used := secret.Labels[tokensecrets.LastUsedLabel]; used {
		return date
	}
	return "none"
}
