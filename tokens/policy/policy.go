// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy decides which payloads the external signer signs for kube-apiserver. It is the home of
// that rule: a Policy allows what kube-apiserver sends for a TokenRequest, and nothing else.
package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"sa-controller-manager/tokens"
	"sa-controller-manager/tokens/internal/claims"
)

// clockLeeway is how far iat may lie in the future. kube-apiserver and the signer run on one machine,
// so that happens only if its clock is set back in between.
const clockLeeway = 10 * time.Second

// The reasons of a RefusalError: one word for the rule of a Policy that a payload breaks, which is
// the value of a metric label.
const (
	// ReasonMalformed means that the payload is not a JSON object in base64url, or is ambiguous.
	ReasonMalformed = "malformed"
	// ReasonIssuer means that the issuer is not one of the cluster.
	ReasonIssuer = "issuer"
	// ReasonSubject means that the subject is not a ServiceAccount, or another one than in the other
	// claims.
	ReasonSubject = "subject"
	// ReasonAudience means that there is no audience. kube-apiserver accepts such a token for every
	// audience, like a legacy token.
	ReasonAudience = "audience"
	// ReasonLifetime means that a date is missing or impossible, or that the lifetime exceeds the
	// limit.
	ReasonLifetime = "lifetime"
	// ReasonLegacy means that the payload has claims of a legacy token, which only the token controller
	// issues.
	ReasonLegacy = "legacy"
)

// RefusalError is the error of Policy.Check. Its text names claims and their expected values, and
// contains nothing of the payload.
type RefusalError struct{ reason, text string }

// Error implements error.
func (r *RefusalError) Error() string { return r.text }

// Reason returns one of the reasons above.
func (r *RefusalError) Reason() string { return r.reason }

// Malformed reports whether the payload could not be read.
func (r *RefusalError) Malformed() bool { return r.reason == ReasonMalformed }

func refuse(reason, format string, args ...any) error {
	return &RefusalError{reason: reason, text: fmt.Sprintf(format, args...)}
}

// Policy decides which payloads the external signer signs: only those of bound tokens as
// kube-apiserver issues them for a TokenRequest (k8s.io/kubernetes pkg/serviceaccount/claims.go).
// kube-apiserver sends no others to its --service-account-signing-endpoint; the token controller
// signs legacy tokens in this process.
//
// Unknown claims are allowed, because a newer Kubernetes may add some. Check is safe for concurrent
// use.
type Policy struct {
	issuers     []string
	maxLifetime time.Duration
	clock       clock.PassiveClock
}

// New returns a policy for tokens of these issuers with a lifetime of at most maxLifetime. An
// issuer must be neither empty nor tokens.LegacyIssuer. A nil clock is the real one.
func New(issuers []string, maxLifetime time.Duration, c clock.PassiveClock) (*Policy, error) {
	if len(issuers) == 0 || slices.Contains(issuers, "") {
		return nil, errors.New("an issuer is missing or empty")
	}
	if slices.Contains(issuers, tokens.LegacyIssuer) {
		return nil, fmt.Errorf("the issuer is %s, which marks legacy tokens", tokens.LegacyIssuer)
	}
	if maxLifetime < time.Second {
		return nil, errors.New("the longest lifetime is less than a second")
	}
	return &Policy{issuers: slices.Clone(issuers), maxLifetime: maxLifetime, clock: cmp.Or[clock.PassiveClock](c, clock.RealClock{})}, nil
}

// Check decodes a payload segment. It returns nil if it may be signed, and otherwise a
// *RefusalError.
func (p *Policy) Check(segment string) error {
	payload, err := decodeClaims(segment)
	if err != nil {
		return err
	}
	for name := range payload {
		if strings.HasPrefix(name, claims.LegacyPrefix) {
			return refuse(ReasonLegacy, "the payload has claims of a legacy token")
		}
	}
	if issuer, ok := payload.Text(claims.Issuer); !ok || !slices.Contains(p.issuers, issuer) {
		return refuse(ReasonIssuer, "claim iss is not an issuer of this cluster")
	}
	if err := checkSubject(payload); err != nil {
		return err
	}
	if !hasAudience(payload[claims.Audience]) {
		return refuse(ReasonAudience, "claim aud names no audience")
	}
	return p.checkLifetime(payload)
}

// decodeClaims decodes a payload, and refuses one that two readers could read differently:
// encoding/json, for example, takes "SUB" for "sub" and replaces characters that are not UTF-8.
func decodeClaims(segment string) (claims.Object, error) {
	if len(segment) > claims.MaxSize {
		return nil, refuse(ReasonMalformed, "the payload is longer than %d bytes", claims.MaxSize)
	}
	decoded, err := claims.DecodeSegment("payload", segment)
	if err != nil {
		return nil, refuse(ReasonMalformed, "the payload is not a base64url segment")
	}
	payload, ok := claims.Parse(decoded)
	if !ok || !utf8.Valid(decoded) {
		return nil, refuse(ReasonMalformed, "the payload is not a JSON object")
	}
	if ambiguous(payload, claims.Issuer, claims.Subject, claims.Audience, claims.Expiry, claims.NotBefore, claims.IssuedAt, claims.TokenID,
		claims.Kubernetes) {
		return nil, refuse(ReasonMalformed, "the payload has a claim whose name differs from a known one in case only")
	}
	return payload, nil
}

// ambiguous reports whether the name of a member differs from one of names in case only.
func ambiguous(members claims.Object, names ...string) bool {
	for member := range members {
		for _, name := range names {
			if member != name && strings.EqualFold(member, name) {
				return true
			}
		}
	}
	return false
}

// checkSubject refuses claims whose subject and private claims do not name the same account, by names
// that the API allows. So it does not matter which of the two a reader uses.
func checkSubject(payload claims.Object) error {
	kubernetes, ok := claims.Parse(payload[claims.Kubernetes])
	if !ok || ambiguous(kubernetes, "namespace", "serviceaccount") {
		return refuse(ReasonSubject, "claim kubernetes.io is not an object that names a namespace and a service account")
	}
	reference, ok := claims.Parse(kubernetes["serviceaccount"])
	if !ok || ambiguous(reference, "name", "uid") {
		return refuse(ReasonSubject, "claim kubernetes.io does not say which service account")
	}
	namespace, hasNamespace := kubernetes.Text("namespace")
	name, hasName := reference.Text("name")
	uid, hasUID := reference.Text("uid")
	if !hasNamespace || !hasName || !hasUID || uid == "" {
		return refuse(ReasonSubject, "claim kubernetes.io lacks the namespace, or the name or UID of the service account")
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return refuse(ReasonSubject, "claim kubernetes.io has a name that no service account can have")
	}
	if subject, ok := payload.Text(claims.Subject); !ok || subject != (tokens.Account{Namespace: namespace, Name: name}).Subject() {
		return refuse(ReasonSubject, "claim sub is not the service account that claim kubernetes.io names")
	}
	return nil
}

// checkLifetime compares exp with iat, and iat with the current time.
func (p *Policy) checkLifetime(payload claims.Object) error {
	issued, hasIssued := seconds(payload, claims.IssuedAt)
	expiry, hasExpiry := seconds(payload, claims.Expiry)
	if !hasIssued || !hasExpiry {
		return refuse(ReasonLifetime, "claim iat or exp is missing or not a date in whole seconds")
	}
	now := p.clock.Now()
	switch {
	case issued.After(now.Add(clockLeeway)):
		return refuse(ReasonLifetime, "claim iat is in the future")
	case !expiry.After(issued), !expiry.After(now):
		return refuse(ReasonLifetime, "claim exp is not after iat, or is in the past")
	case expiry.Sub(issued) > p.maxLifetime:
		return refuse(ReasonLifetime, "claim exp is further away than %v", p.maxLifetime)
	}
	if _, present := payload[claims.NotBefore]; !present {
		return nil
	}
	if start, ok := seconds(payload, claims.NotBefore); !ok || start.After(expiry) {
		return refuse(ReasonLifetime, "claim nbf is not a date in whole seconds before exp")
	}
	return nil
}

// hasAudience reports whether there is an audience, and none is empty. It accepts both forms of RFC
// 7519, section 4.1.3: a string or a list of strings.
func hasAudience(raw json.RawMessage) bool {
	list, err := claims.Audiences(raw)
	return err == nil && len(list) > 0 && !slices.Contains(list, "")
}

// seconds returns a member that is a date in whole seconds, as kube-apiserver writes dates.
func seconds(of claims.Object, name string) (time.Time, bool) {
	var number json.Number
	raw := of[name]
	if len(raw) == 0 || claims.Quoted(raw) || json.Unmarshal(raw, &number) != nil {
		return time.Time{}, false
	}
	value, err := number.Int64()
	if err != nil || value < 0 || value > claims.LastSecond {
		return time.Time{}, false
	}
	return time.Unix(value, 0), true
}
