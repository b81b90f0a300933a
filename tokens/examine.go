// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sa-controller-manager/tokens/internal/claims"
)

// Form is the kind of a token.
type Form string

const (
	// LegacyForm is a token of a token Secret.
	LegacyForm Form = "legacy"
	// BoundForm is a token of a TokenRequest.
	BoundForm Form = "bound"
	// OtherForm is a token of no Kubernetes ServiceAccount.
	OtherForm Form = "other"
)

// Object is an object that a token is bound to. The token is invalid once the object is gone.
type Object struct{ Kind, Name, UID string }

// Examination is the unverified content of a token, for the user who holds it. With the signature it
// is the whole token, so callers choose with care what they print.
type Examination struct {
	Token

	Form    Form
	Account Account // of LegacyForm and BoundForm
	Bound   []Object

	Audiences []string
	TokenID   string
	// A time is zero if the token does not have the claim.
	IssuedAt, NotBefore, Expires, WarnAfter time.Time

	// Header and Claims are JSON objects; Signature is a segment.
	Header, Claims json.RawMessage
	Signature      string
}

// Examine decodes a token without verifying it, and refuses the same tokens as Inspect. The error is
// an ErrMalformed that names the malformed part and contains nothing of the token.
func Examine(token string) (Examination, error) {
	decoded, err := Inspect(token)
	if err != nil {
		return Examination{}, err
	}
	segments := strings.Split(token, ".")
	e := Examination{Token: decoded, Form: OtherForm, Signature: segments[2]}
	if e.Header, err = readable("header", segments[0]); err != nil {
		return Examination{}, err
	}
	if e.Claims, err = readable("payload", segments[1]); err != nil {
		return Examination{}, err
	}
	payload, _ := claims.Parse(e.Claims) // Inspect has parsed it before
	if err := e.readTimes(payload); err != nil {
		return Examination{}, err
	}
	if e.Audiences, err = claims.Audiences(payload[claims.Audience]); err != nil {
		return Examination{}, err
	}
	if !claims.Absent(payload[claims.TokenID]) && json.Unmarshal(payload[claims.TokenID], &e.TokenID) != nil {
		return Examination{}, fmt.Errorf("%w: the claim jti is not a string", ErrMalformed)
	}
	if decoded.Issuer == LegacyIssuer {
		e.Form = LegacyForm
		e.Account = Account{Namespace: decoded.Namespace, Name: decoded.AccountName, UID: decoded.AccountUID}
		return e, nil
	}
	return e, e.readBinding(payload[claims.Kubernetes])
}

// maxNesting is far more than a token needs. Deeper JSON could fill a disk when it is indented.
const maxNesting = 32

func readable(name, segment string) (json.RawMessage, error) {
	text, err := claims.DecodeSegment(name, segment)
	if err != nil {
		return nil, err
	}
	depth := 0
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		part, err := decoder.Token()
		if err != nil {
			return text, nil //nolint:nilerr // the end: Inspect has validated it
		}
		switch part {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth > maxNesting {
			return nil, fmt.Errorf("%w: the %s is nested more than %d levels deep", ErrMalformed, name, maxNesting)
		}
	}
}

func (e *Examination) readTimes(payload claims.Object) error {
	for _, claim := range []struct {
		name   string
		target *time.Time
	}{{claims.IssuedAt, &e.IssuedAt}, {claims.NotBefore, &e.NotBefore}, {claims.Expiry, &e.Expires}} {
		if claims.Absent(payload[claim.name]) {
			continue
		}
		var ok bool
		if *claim.target, ok = readTime(payload[claim.name]); !ok {
			return fmt.Errorf("%w: the claim %s is not a time", ErrMalformed, claim.name)
		}
	}
	return nil
}

// readTime reads a NumericDate (RFC 7519, section 2), rounded down to seconds as in go-jose.
func readTime(raw json.RawMessage) (time.Time, bool) {
	var seconds float64
	if json.Unmarshal(raw, &seconds) != nil || seconds < 0 || seconds > claims.LastSecond {
		return time.Time{}, false
	}
	return time.Unix(int64(seconds), 0).UTC(), true
}

func (e *Examination) readBinding(raw json.RawMessage) error {
	if claims.Absent(raw) {
		return nil
	}
	type reference struct{ Name, UID string }
	var private struct {
		Namespace      string          `json:"namespace"`
		ServiceAccount *reference      `json:"serviceaccount"`
		Pod            *reference      `json:"pod"`
		Secret         *reference      `json:"secret"`
		Node           *reference      `json:"node"`
		WarnAfter      json.RawMessage `json:"warnafter"`
	}
	if json.Unmarshal(raw, &private) != nil {
		return fmt.Errorf("%w: the claim %s is not what kube-apiserver writes", ErrMalformed, claims.Kubernetes)
	}
	if !claims.Absent(private.WarnAfter) {
		var ok bool
		if e.WarnAfter, ok = readTime(private.WarnAfter); !ok {
			return fmt.Errorf("%w: the claim %s.warnafter is not a time", ErrMalformed, claims.Kubernetes)
		}
	}
	if private.ServiceAccount == nil {
		return nil
	}
	e.Form = BoundForm
	e.Account = Account{Namespace: private.Namespace, Name: private.ServiceAccount.Name, UID: private.ServiceAccount.UID}
	// A token of a Pod names its node for information: the node need not exist.
	node := private.Node
	if private.Pod != nil {
		node = nil
	}
	for _, bound := range []struct {
		kind string
		to   *reference
	}{{"Pod", private.Pod}, {"Secret", private.Secret}, {"Node", node}} {
		if bound.to != nil {
			e.Bound = append(e.Bound, Object{Kind: bound.kind, Name: bound.to.Name, UID: bound.to.UID})
		}
	}
	return nil
}
