// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// ReissueAnnotation says how a token Secret is re-issued once the key that has
	// signed its token is retired. Its values are those of ReissueMode that a person
	// can choose.
	ReissueAnnotation = "sa-controller-manager/reissue"

	// ReplacesAnnotation names, as name/UID, the token Secret that this one was made
	// to replace.
	ReplacesAnnotation = "sa-controller-manager/replaces"
)

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

// Predecessor is the Secret that another one was made to replace.
type Predecessor struct {
	Name string
	UID  types.UID
}

// String is the annotation's value.
func (p Predecessor) String() string { return p.Name + "/" + string(p.UID) }

// parsePredecessor is the zero value if text names no Secret.
func parsePredecessor(text string) Predecessor {
	name, uid, ok := strings.Cut(text, "/")
	if !ok || name == "" || uid == "" || len(name) > validation.DNS1123SubdomainMaxLength || len(uid) > longestUID {
		return Predecessor{}
	}
	return Predecessor{Name: name, UID: types.UID(uid)}
}

// Replaces reports whether s was made to replace other. A Secret that was made again
// under other's name is not meant.
func (s *TokenSecret) Replaces(other *TokenSecret) bool {
	return s.Predecessor == Predecessor{Name: other.Name, UID: other.UID} &&
		s.Namespace == other.Namespace && s.AccountName == other.AccountName
}

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
