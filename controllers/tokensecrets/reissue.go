// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

// ReissueAnnotation says how a token Secret is re-issued once the key that has signed its token is
// retired. Its values are those of ReissueMode that a user can choose.
const ReissueAnnotation = "sa-controller-manager/reissue"

// ReissueMode is how a token Secret is re-issued.
type ReissueMode string

const (
	// ReissueSideBySide creates a new Secret and keeps the old one for its clients.
	ReissueSideBySide ReissueMode = "side-by-side"
	// ReissueNever leaves the Secret as it is.
	ReissueNever ReissueMode = "never"

	// ReissueUserMade is the mode of a user's Secret without annotation: nothing is done.
	ReissueUserMade ReissueMode = "user-made"
	// ReissueUnknown is the mode of a Secret whose annotation has another value:
	// nothing is done.
	ReissueUnknown ReissueMode = "unknown"
)

// ReissueMode returns the mode in the annotation or, without one, ReissueSideBySide for a Secret
// that a token controller created.
func (s *TokenSecret) ReissueMode() ReissueMode {
	switch mode := ReissueMode(s.Reissue); mode {
	case ReissueSideBySide, ReissueNever:
		return mode
	case "":
		if s.MadeByTokenController() {
			return ReissueSideBySide
		}
		return ReissueUserMade
	default:
		return ReissueUnknown
	}
}
