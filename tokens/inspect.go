// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// maxTokenSize is the longest token that is decoded, in bytes. It is far more than a token needs, and
// little enough for any content of a Secret to be decoded.
const maxTokenSize = 64 << 10

// ErrMalformed means that a string is no token, or a token that this package must not interpret.
var ErrMalformed = errors.New("malformed token")

// Token is the content of a token. It is unverified unless VerifyLegacy returned it. A field is empty
// if the token does not have it.
type Token struct {
	KeyID     string // empty in tokens of very old kube-controller-managers
	Algorithm string
	Issuer    string
	Subject   string

	// The claims of a legacy token.
	Namespace   string
	SecretName  string
	AccountName string
	AccountUID  string
}

// Inspect decodes a token without verifying it. It accepts tokens that kube-apiserver could accept,
// in canonical spelling: at most 64 KiB, three segments in canonical unpadded base64url, and a
// header and a payload that are JSON objects without duplicate members. The error is an ErrMalformed
// and contains nothing of the token.
func Inspect(token string) (Token, error) {
	segments, err := split(token)
	if err != nil {
		return Token{}, err
	}
	header, err := decodeObject("header", segments[0])
	if err != nil {
		return Token{}, err
	}
	payload, err := decodeObject("payload", segments[1])
	if err != nil {
		return Token{}, err
	}
	if _, err := decodeSegment("signature", segments[2]); err != nil {
		return Token{}, err
	}
	return collect(header, payload)
}

func split(token string) ([]string, error) {
	if len(token) > maxTokenSize {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrMalformed, maxTokenSize)
	}
	segments := strings.SplitN(token, ".", 4)
	if len(segments) != 3 {
		return nil, fmt.Errorf("%w: not three segments", ErrMalformed)
	}
	return segments, nil
}

// decodeSegment decodes unpadded base64url. It refuses set bits behind the last byte (Strict) and line
// breaks, which the decoder would skip: otherwise two different strings would be the same token, and
// kube-apiserver compares strings.
func decodeSegment(name, segment string) ([]byte, error) {
	if strings.ContainsAny(segment, "\r\n") {
		return nil, fmt.Errorf("%w: the %s contains a line break", ErrMalformed, name)
	}
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(segment)
	if err != nil {
		return nil, fmt.Errorf("%w: the %s is not base64url", ErrMalformed, name)
	}
	return decoded, nil
}

func decodeObject(name, segment string) (object, error) {
	decoded, err := decodeSegment(name, segment)
	if err != nil {
		return nil, err
	}
	members, ok := parseObject(decoded)
	if !ok {
		return nil, fmt.Errorf("%w: the %s is not a JSON object", ErrMalformed, name)
	}
	return members, nil
}

// collect reads the known members of header and payload.
//
// crit lists extensions that a reader must understand or else refuse the token (RFC 7515, section
// 4.1.11), and b64 changes what is signed. No ServiceAccount token has either, and golang-jwt would
// ignore both.
func collect(header, payload object) (Token, error) {
	for _, name := range []string{"crit", "b64"} {
		if _, present := header[name]; present {
			return Token{}, fmt.Errorf("%w: the header demands an extension (%s)", ErrMalformed, name)
		}
	}
	var token Token
	for _, member := range []struct {
		of     object
		name   string
		target *string
	}{
		{header, "kid", &token.KeyID},
		{header, "alg", &token.Algorithm},
		{payload, claimIssuer, &token.Issuer},
		{payload, claimSubject, &token.Subject},
		{payload, claimNamespace, &token.Namespace},
		{payload, claimSecretName, &token.SecretName},
		{payload, claimAccountName, &token.AccountName},
		{payload, claimAccountUID, &token.AccountUID},
	} {
		value, ok := text(member.of, member.name)
		if _, present := member.of[member.name]; present && !ok {
			return Token{}, fmt.Errorf("%w: %s is not a string", ErrMalformed, member.name)
		}
		*member.target = value
	}
	return token, nil
}

// Canonical returns the spelling of a token that its issuer wrote, if kube-apiserver accepts the given
// spelling too, and otherwise the token unchanged. kube-apiserver skips white space and the unused
// bits of base64url before it verifies the signature (go-jose), and in the payload only line breaks
// (hasCorrectIssuer in k8s.io/kubernetes pkg/serviceaccount/jwt.go). A legacy token must also be the
// same string as in its Secret; over a WebSocket white space at its ends counts.
//
// Code that finds the key of a token uses Canonical, or the key of an edited token that is still
// valid could be pruned. Inspect and VerifyLegacy do not: only tokens that are spelled as an Issuer
// writes them are re-issued.
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

// Mismatch compares the claims of a token with those of a legacy token of this account and Secret.
// It returns "" if they agree, and otherwise one sentence with the first claim that differs and its
// expected value. The sentence does not contain the value in the token, which may be from another
// cluster, so an Event may contain it.
func (t Token) Mismatch(account Account, secretName string) string {
	for _, claim := range []struct{ name, got, want string }{
		{claimIssuer, t.Issuer, LegacyIssuer},
		{claimNamespace, t.Namespace, account.Namespace},
		{claimAccountName, t.AccountName, account.Name},
		{claimAccountUID, t.AccountUID, account.UID},
		{claimSecretName, t.SecretName, secretName},
		{claimSubject, t.Subject, account.Subject()},
	} {
		switch claim.got {
		case claim.want:
		case "":
			return fmt.Sprintf("the token has no claim %s (expected %q)", claim.name, claim.want)
		default:
			return fmt.Sprintf("the token's claim %s is not %q", claim.name, claim.want)
		}
	}
	return ""
}
