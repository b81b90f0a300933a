// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"time"

	"github.com/spf13/pflag"
)

// ReissueMode says what becomes of token Secrets whose key is retired.
type ReissueMode string

const (
	// ReissueSideBySide makes a new Secret for each that a token controller made.
	ReissueSideBySide ReissueMode = "side-by-side"
	// ReissueOff leaves all of them as they are.
	ReissueOff ReissueMode = "off"
)

// Reissue say what a rotation means for token Secrets.
type Reissue struct {
	// TokenSecrets is the mode.
	TokenSecrets ReissueMode
	// IdlePeriod is how long a replaced Secret must be unused before it is marked
	// invalid, and how long it must have been invalid before it is deleted.
	IdlePeriod time.Duration
}

func newReissue() Reissue {
	return Reissue{TokenSecrets: ReissueSideBySide, IdlePeriod: 365 * 24 * time.Hour}
}

// AddFlags binds the group to fs.
func (o *Reissue) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar((*string)(&o.TokenSecrets), "reissue-token-secrets", string(o.TokenSecrets),
		"What becomes of token Secrets whose key --service-account-key-ring has retired. \"side-by-side\": each one that a token controller "+
			"made is replaced by a new one, and stays valid for those who use it; the annotation sa-controller-manager/reissue on a "+
			"Secret asks for side-by-side, in-place or never. \"off\": nothing, whatever the annotation says.")
	fs.DurationVar(&o.IdlePeriod, "reissue-idle-period", o.IdlePeriod,
		"How long the token of a Secret that was replaced, and that no Pod uses, must be unused before it is marked invalid, and how long "+
			"it must have been invalid before the Secret is deleted. Dates count in days. The legacy token cleaner does both.")

	SetOrigin(fs, ours, "reissue-token-secrets", "reissue-idle-period")
}

// Validate returns every problem of the group.
func (o *Reissue) Validate() []error {
	var p Problems
	p.OneOf("reissue-token-secrets", string(o.TokenSecrets), string(ReissueSideBySide), string(ReissueOff))
	p.Positive("reissue-idle-period", o.IdlePeriod)
	return p
}
