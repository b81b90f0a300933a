// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode"

	"sa-controller-manager/tokens/internal/claims"
)

// ErrMalformed means that a string is no token, or a token that this package must not interpret.
var ErrMalformed = claims.ErrMalformed

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
	if _, err := claims.DecodeSegment("signature", segments[2]); err != nil {
		return Token{}, err
	}
	return collect(header, payload)
}

func split(token string) ([]string, error) {
	if len(token) > claims.MaxSize {
		return nil, fmt.Errorf("%w: longer than %d bytes", ErrMalformed, claims.MaxSize)
	}
	segments := strings.SplitN(token, ".", 4)
	if len(segments) != 3 {
		return nil, fmt.Errorf("%w: not three segments", ErrMalformed)
	}
	return segments, nil
}

func decodeObject(name, segment string) (claims.Object, error) {
	decoded, err := claims.DecodeSegment(name, segment)
	if err != nil {
		return nil, err
	}
	members, ok := claims.Parse(decoded)
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
func collect(header, payload claims.Object) (Token, error) {
	for _, name := range []string{"crit", "b64"} {
		if _, present := header[name]; present {
			return Token{}, fmt.Errorf("%w: the header demands an extension (%s)", ErrMalformed, name)
		}
	}
	var token Token
	for _, member := range []struct {
		of     claims.Object
		name   string
		target *string
	}{
		{header, "kid", &token.KeyID},
		{header, "alg", &token.Algorithm},
		{payload, claims.Issuer, &token.Issuer},
		{payload, claims.Subject, &token.Subject},
		{payload, claims.Namespace, &token.Namespace},
		{payload, claims.SecretName, &token.SecretName},
		{payload, claims.AccountName, &token.AccountName},
		{payload, claims.AccountUID, &token.AccountUID},
	} {
		value, ok := member.of.Text(member.name)
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
		{claims.Issuer, t.Issuer, LegacyIssuer},
		{claims.Namespace, t.Namespace, account.Namespace},
		{claims.AccountName, t.AccountName, account.Name},
		{claims.AccountUID, t.AccountUID, account.UID},
		{claims.SecretName, t.SecretName, secretName},
		{claims.Subject, t.Subject, account.Subject()},
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
