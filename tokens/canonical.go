// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"encoding/base64"
	"strings"
	"unicode"
)

// Canonical spells a token as its issuer did, if kube-apiserver reads it so though it is spelled otherwise, and is the token itself
// if not. kube-apiserver skips white space, and the bits that base64url leaves over, and verifies the signature of what is left
// (go-jose); in the payload it skips line breaks only (hasCorrectIssuer in k8s.io/kubernetes pkg/serviceaccount/jwt.go). Of a legacy
// token it then wants but the same string as in the Secret, even with white space at its ends if it comes over a WebSocket.
//
// Whoever tells what a token is, or which key it needs, has to read it so: an edit could have a token that is live called none
// otherwise, and its key be pruned. Inspect and VerifyLegacy do not: what we decide to re-issue is spelled as we write it.
func Canonical(token string) string {
	segments := strings.SplitN(token, ".", 4)
	if len(segments) != 3 {
		return token
	}
	for i, segment := range segments {
		if i != 1 {
			segment = strings.Map(withoutSpace, segment)
		}
		decoded, err := base64.RawURLEncoding.DecodeString(segment) // it skips line breaks
		if err != nil {
			return token
		}
		segments[i] = base64.RawURLEncoding.EncodeToString(decoded)
	}
	return strings.Join(segments, ".")
}

func withoutSpace(r rune) rune {
	if unicode.IsSpace(r) {
		return -1
	}
	return r
}
