// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

// ReissueAnnotation says how a token Secret is re-issued once the key that has signed its token is
// retired. Its values are those of ReissueMode that a user can choose.
const ReissueAnnotation = "sa-controller-manager/reissue"

// ReissueMode is how a token Secret is re-issued.
type ReissueMode string

const (
	// ReissueSideBySide makes a new Secret and leaves the old one to those who use it.
	ReissueSideBySide ReissueMode = "side-by-side"
	// ReissueInPlace overwrites the token, which revokes the old one at once.
	ReissueInPlace ReissueMode = "in-place"
	// ReissueNever leaves the Secret as it is.
	ReissueNever ReissueMode = "never"

	// ReissueUserMade is the mode of a Secret that no token controller made and that
	// bears no annotation: nothing is done.
	ReissueUserMade ReissueMode = "user-made"
	// ReissueUnknown is the mode of a Secret whose annotation has another value:
	// nothing is done.
	ReissueUnknown ReissueMode = "unknown"
)

// ReissueMode is what the annotation says or, without it, what follows from who made
// the Secret.
func (s *TokenSecret) ReissueMode() ReissueMode {
	switch mode := ReissueMode(s.Reissue); mode {
	case ReissueSideBySide, ReissueInPlace, ReissueNever:
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
