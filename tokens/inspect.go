// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// maxTokenSize bounds what is decoded, in bytes. It is many times what a token needs, and small
// enough that a Secret full of nonsense costs nothing.
const maxTokenSize = 64 << 10

// ErrMalformed says that a string is not a token at all, or one that this package must not
// interpret.
var ErrMalformed = errors.New("malformed token")

// Token is what a token says of itself. Unless VerifyLegacy returned it, nobody vouches for a word
// of it. A field is empty if the token has no such member.
type Token struct {
	KeyID     string // very old kube-controller-managers wrote none
	Algorithm string
	Issuer    string
	Subject   string

	// The claims of a legacy token.
	Namespace   string
	SecretName  string
	AccountName string
	AccountUID  string
}

// Inspect decodes a token without verifying it. It accepts what kube-apiserver could accept, in the
// spelling of Canonical: at most 64 KiB, three segments in canonical unpadded base64url, and a
// header and payload that are JSON objects without duplicate members. The error is an ErrMalformed
// and holds nothing of the token.
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

// decodeSegment reads unpadded base64url. Strict refuses set bits behind the last byte, and line
// breaks, which the decoder skips, are refused by hand: otherwise two different strings would be
// the same token, and the apiserver compares strings.
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

// collect takes the members it knows out of header and payload.
//
// crit lists extensions that a reader must understand or else refuse the token (RFC 7515, section
// 4.1.11), and b64 is the one that changes what is signed. No ServiceAccount token has either, and
// golang-jwt would ignore both.
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
		raw, present := member.of[member.name]
		if !present {
			continue
		}
		if !quoted(raw) || json.Unmarshal(raw, member.target) != nil {
			return Token{}, fmt.Errorf("%w: %s is not a string", ErrMalformed, member.name)
		}
	}
	return token, nil
}

// Canonical spells a token as its issuer did, if kube-apiserver reads it so though it is spelled
// otherwise, and is the token itself if not. kube-apiserver skips white space, and the bits that
// base64url leaves over, and verifies the signature of what is left (go-jose); in the payload it
// skips line breaks only (hasCorrectIssuer in k8s.io/kubernetes pkg/serviceaccount/jwt.go). Of a
// legacy token it then wants but the same string as in the Secret, even with white space at its
// ends if it comes over a WebSocket.
//
// Whoever tells what a token is, or which key it needs, has to read it so: an edit could have a
// token that is live called none otherwise, and its key be pruned. Inspect and VerifyLegacy do not:
// what we decide to re-issue is spelled as we write it.
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

// Mismatch compares the claims of a token with what a legacy token of this account and Secret
// holds. It returns "" if every claim fits, and otherwise one sentence that names the first claim
// that does not and what it should be. The sentence is fit for an Event: the token's own value is
// not in it, for the token may be a stranger's.
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
