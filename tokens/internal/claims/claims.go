// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// MaxSize is the longest token or payload that is decoded, in bytes. It is far more than a token needs,
// and little enough for any content of a Secret to be decoded.
const MaxSize = 64 << 10

// LastSecond is the end of the year 9999, in seconds since the epoch. Later dates have no text form.
const LastSecond = 253402300799

// The claims of a token (k8s.io/kubernetes pkg/serviceaccount/legacy.go and claims.go).
const (
	Issuer   = "iss"
	Subject  = "sub"
	IssuedAt = "iat"
	TokenID  = "jti"

	// Audience and the next ones are of a bound token.
	Audience   = "aud"
	Expiry     = "exp"
	NotBefore  = "nbf"
	Kubernetes = "kubernetes.io"

	// LegacyPrefix and the next ones are of a legacy token.
	LegacyPrefix = "kubernetes.io/serviceaccount/"
	Namespace    = LegacyPrefix + "namespace"
	SecretName   = LegacyPrefix + "secret.name"
	AccountName  = LegacyPrefix + "service-account.name"
	AccountUID   = LegacyPrefix + "service-account.uid"
)

// ErrMalformed means that a string is no token, or a token that must not be interpreted.
var ErrMalformed = errors.New("malformed token")

// DecodeSegment decodes unpadded base64url. It refuses set bits behind the last byte (Strict) and line
// breaks, which the decoder would skip: otherwise two different strings would be the same token, and
// kube-apiserver compares strings.
func DecodeSegment(name, segment string) ([]byte, error) {
	if strings.ContainsAny(segment, "\r\n") {
		return nil, fmt.Errorf("%w: the %s contains a line break", ErrMalformed, name)
	}
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(segment)
	if err != nil {
		return nil, fmt.Errorf("%w: the %s is not base64url", ErrMalformed, name)
	}
	return decoded, nil
}

// Absent reports whether a claim is missing. Like go-jose, with which kube-apiserver reads tokens, it
// treats null as missing.
func Absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// Audiences reads a string or a list of them (RFC 7519, section 4.1.3).
func Audiences(raw json.RawMessage) ([]string, error) {
	if Absent(raw) {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var several []string
	if json.Unmarshal(raw, &several) != nil {
		return nil, fmt.Errorf("%w: the claim aud is neither a string nor a list of strings", ErrMalformed)
	}
	return several, nil
}
