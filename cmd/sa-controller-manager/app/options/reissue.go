// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import "github.com/spf13/pflag"

// ReissueMode defines what happens to token Secrets whose key is retired.
type ReissueMode string

const (
	// ReissueSideBySide creates a successor of each Secret that a token controller created.
	ReissueSideBySide ReissueMode = "side-by-side"
	// ReissueOff keeps all of them.
	ReissueOff ReissueMode = "off"
)

// Reissue has the flags of the re-issue of token Secrets after a rotation.
type Reissue struct {
	// TokenSecrets is the mode.
	TokenSecrets ReissueMode
}

func newReissue() Reissue {
	return Reissue{TokenSecrets: ReissueSideBySide}
}

// AddFlags binds the group to fs.
func (o *Reissue) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar((*string)(&o.TokenSecrets), "reissue-token-secrets", string(o.TokenSecrets),
		"How to re-issue token Secrets whose key --service-account-key-ring has retired. \"side-by-side\": those that a token controller "+
			"has created get a successor; the annotation sa-controller-manager/reissue asks for side-by-side or never. "+
			"\"off\": re-issue none.")
	SetOrigin(fs, ours, "reissue-token-secrets")
}

// Validate returns every problem of the group.
func (o *Reissue) Validate() []error {
	var p Problems
	p.OneOf("reissue-token-secrets", string(o.TokenSecrets), string(ReissueSideBySide), string(ReissueOff))
	return p
}
