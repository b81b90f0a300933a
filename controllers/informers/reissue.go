// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Replaces tells whether s was made to replace other. A Secret that was made again
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

// MadeByTokenController tells whether a token controller created the Secret and not a
// person: it bears our marker, managedFields say so or, where they say nothing, it is
// named as token controllers name, and as people's generateName may. That an account references it proves nothing, since people write such
// references by hand; nor does a filled token, since theirs are filled as well.
func (s *TokenSecret) MadeByTokenController() bool {
	return s.AutoCreated() || s.Creator == TokenControllerCreated || s.Creator == NobodyCreated && hasGeneratedName(s.Name, s.AccountName)
}

// generatedBase is the longest base of a name that kube-apiserver's generator takes
// (maxGeneratedNameLength in k8s.io/apiserver/pkg/storage/names); kube-controller-manager
// used that generator until 1.23.
const generatedBase = 58

// generatedSuffix is what rand.String makes (k8s.io/apimachinery/pkg/util/rand). It has
// no vowels, so hardly any word is taken for one.
var generatedSuffix = regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz2456789]{5}$`)

func hasGeneratedName(secret, account string) bool {
	if account == "" {
		return false
	}
	base := account + "-token-"
	for _, prefix := range []string{base, base[:min(len(base), generatedBase)]} {
		if suffix, ok := strings.CutPrefix(secret, prefix); ok && generatedSuffix.MatchString(suffix) {
			return true
		}
	}
	return false
}

// Creator is who has created a Secret, as far as managedFields tell.
type Creator string

const (
	// NobodyCreated means that they do not tell, as in a Secret from before they were kept.
	NobodyCreated Creator = ""
	// TokenControllerCreated means that it was this program or kube-controller-manager.
	TokenControllerCreated Creator = "token-controller"
	// OtherCreated means that it was anybody else.
	OtherCreated Creator = "other"
)

// creatorOf is whom managedFields attribute the type of the Secret to. It cannot be
// changed, so its owner is who created the Secret; data.token says only who filled it.
func creatorOf(secret *corev1.Secret) Creator {
	creator := NobodyCreated
	for _, entry := range secret.ManagedFields {
		if !ownsType(entry) {
			continue
		}
		if slices.Contains(tokenControllers, entry.Manager) {
			return TokenControllerCreated
		}
		creator = OtherCreated
	}
	return creator
}

func ownsType(entry metav1.ManagedFieldsEntry) bool {
	var owned struct {
		Type json.RawMessage `json:"f:type"`
	}
	return entry.FieldsV1 != nil && json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) == nil && owned.Type != nil
}
