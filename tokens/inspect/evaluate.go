// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apimachinery/pkg/util/duration"

	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// Known is what is known besides the token.
type Known struct {
	Now time.Time
	// Keys are those that may have signed it.
	Keys []signing.Key
	// Issuers are those of the cluster's bound tokens. Without any the issuer is not compared.
	Issuers []string
	// Review is the answer of kube-apiserver, nil if it was not asked.
	Review *Review
}

// Verdict is the sum of the findings.
type Verdict string

// A token is valid if there is no finding, and Unknown for want of keys.
const (
	Valid   Verdict = "valid"
	Invalid Verdict = "invalid"
	Unknown Verdict = "unknown"
)

// Report is the output of the command.
type Report struct {
	printers.Head
	Verdict Verdict `json:"verdict"`
	// Findings are why it is not valid, or why that is not known.
	Findings []check.Finding `json:"findings"`
	Notes    []check.Finding `json:"notes,omitempty"`
	// Key made the signature; nil if no key is known to have.
	Key       *signing.Key    `json:"key,omitempty"`
	KeyOrigin string          `json:"keyOrigin,omitempty"`
	Review    *Review         `json:"review,omitempty"`
	Header    json.RawMessage `json:"header,omitempty"`
	Claims    json.RawMessage `json:"claims,omitempty"`

	registered jwt.RegisteredClaims
	now        time.Time
}

// maxInput is more than any token, in bytes.
const maxInput = 128 << 10

// Read reads a token, without the white space around it and the "Bearer " that HTTP puts in front. Errors hold nothing
// of it.
func Read(input io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(input, maxInput+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxInput {
		return "", fmt.Errorf("it is larger than %d bytes", maxInput)
	}
	token := strings.TrimSpace(string(data))
	if scheme, rest, found := strings.Cut(token, " "); found && strings.EqualFold(scheme, "bearer") {
		token = strings.TrimSpace(rest)
	}
	if token == "" {
		return "", errors.New("it is empty")
	}
	if decoded, err := base64.StdEncoding.DecodeString(token); err == nil && bytes.Count(decoded, []byte(".")) == 2 {
		return "", errors.New("it is encoded as in a Secret, pipe it through base64 -d")
	}
	return token, nil
}

// Evaluate examines a token as kube-apiserver reads it. It never fails: a string that is no token is invalid.
func Evaluate(token string, known Known) Report {
	r := Report{Head: printers.Of("TokenInspection"), Verdict: Invalid, Findings: []check.Finding{}, Review: known.Review, now: known.Now}
	canonical := tokens.Canonical(token)
	decoded, err := tokens.Inspect(canonical)
	if err == nil {
		r.registered, err = claimsOf(canonical)
	}
	if err != nil {
		r.find("malformed", err.Error())
		return r
	}
	r.Header, r.Claims = document(canonical, 0), document(canonical, 1)
	signed := r.checkSignature(canonical, decoded, known.Keys)
	if decoded.Issuer != tokens.LegacyIssuer { // kube-apiserver ignores the times of a legacy token
		r.checkBound(known)
	}
	if canonical != token {
		r.note("respelled", "it is not spelled as it was issued, by white space or unused bits of base64url: kube-apiserver accepts that, "+
			"and others may refuse it")
	}
	r.decide(signed)
	if known.Review == nil && r.Verdict != Invalid {
		r.note("not-reviewed", "kube-apiserver accepts it only as long as its account and what it is bound to exist, and a token Secret "+
			"holds this very token: it was not asked")
	}
	return r
}

// claimsOf reads the registered claims of a token that tokens.Inspect accepts.
func claimsOf(token string) (claims jwt.RegisteredClaims, err error) {
	err = jsonv2.Unmarshal(segment(token, 1), &claims, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if err != nil { // the error may quote a claim
		return claims, fmt.Errorf("%w: exp, nbf and iat must be times, aud a string or a list of strings, and jti a string",
			tokens.ErrMalformed)
	}
	return claims, nil
}

func segment(token string, i int) []byte {
	text, _ := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[i]) // tokens.Inspect has decoded it
	return text
}

// maxNesting is far more than a token needs.
const maxNesting = 100

// document returns a segment for printing: nil if it is nested so deeply that its indentation would fill a disk, and
// without bytes that YAML cannot hold.
func document(token string, i int) json.RawMessage {
	text := segment(token, i)
	if bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) > maxNesting {
		return nil
	}
	return bytes.ToValidUTF8(text, []byte("\ufffd"))
}

// checkSignature reports whether a key is known to have made the signature.
func (r *Report) checkSignature(token string, decoded tokens.Token, known []signing.Key) bool {
	if len(known) == 0 {
		return false
	}
	key, err := tokens.KeyOf(token, known)
	switch {
	case err == nil:
		r.Key, r.KeyOrigin = &key, key.Origin
		return true
	case errors.Is(err, tokens.ErrUnknownKey):
		r.find("unknown-key", "no key that was given has its key ID")
	case decoded.KeyID == "":
		r.find("wrong-signature", "it has no key ID, and none of the keys that were given made its signature")
	default:
		r.find("wrong-signature", "the signature is wrong: the key that its header names did not make it")
	}
	return false
}

// checkBound compares the times as kube-apiserver does (k8s.io/kubernetes pkg/serviceaccount/claims.go), without the
// minute that it allows clocks to differ, and the issuer.
func (r *Report) checkBound(known Known) {
	claims := r.registered
	if claims.ExpiresAt == nil {
		r.note("never-expires", "it never expires")
	} else if r.now.After(claims.ExpiresAt.Time) {
		r.find("expired", "it expired "+r.when(claims.ExpiresAt))
	}
	for _, from := range []*jwt.NumericDate{claims.NotBefore, claims.IssuedAt} {
		if from != nil && r.now.Before(from.Time) {
			r.find("not-yet-valid", "it is valid only "+r.when(from)+": a clock may be wrong")
			break
		}
	}
	if len(known.Issuers) == 0 {
		r.note("issuer-not-compared", "the issuer was not compared: none was given")
	} else if !slices.Contains(known.Issuers, claims.Issuer) {
		r.find("wrong-issuer", "the issuer is not "+strings.Join(known.Issuers, " or "))
	}
}

// when is a time relative to now.
func (r *Report) when(t *jwt.NumericDate) string {
	if t.After(r.now) {
		return "in " + duration.HumanDuration(t.Sub(r.now))
	}
	return duration.HumanDuration(r.now.Sub(t.Time)) + " ago"
}

func (r *Report) find(code, message string) {
	r.Findings = append(r.Findings, check.Finding{Code: code, Message: message})
}

func (r *Report) note(code, message string) {
	r.Notes = append(r.Notes, check.Finding{Code: code, Message: message})
}

// decide lets the review of kube-apiserver decide: findings about a token that it accepts become notes.
func (r *Report) decide(signed bool) {
	switch {
	case r.Review != nil && r.Review.Authenticated:
		r.Verdict = Valid
		for _, finding := range r.Findings {
			r.note(finding.Code, "kube-apiserver accepts it although "+finding.Message)
		}
		r.Findings = []check.Finding{}
	case r.Review != nil:
		r.find("refused", "kube-apiserver refuses it: "+cmp.Or(r.Review.Error, "it gives no reason"))
	case len(r.Findings) == 0 && signed:
		r.Verdict = Valid
	case len(r.Findings) == 0:
		r.Verdict = Unknown
		r.find("no-key", "there is no key to verify the signature with")
	}
}

// Text begins with the verdict, because claims are long.
func (r *Report) Text() string {
	var b strings.Builder
	table := printers.Table(&b)
	line := func(name, value string) { fmt.Fprintf(table, "%s:\t%s\n", name, printers.Printable(value)) }
	line("Verdict", string(r.Verdict))
	for _, reason := range r.Findings {
		line("Because", reason.Message)
	}
	for _, note := range r.Notes {
		line("Note", note.Line())
	}
	if at := r.registered.ExpiresAt; at != nil {
		line("Expires", at.UTC().Format(time.RFC3339)+" ("+r.when(at)+")")
	}
	if r.Key != nil {
		line("Signed with", fmt.Sprintf("key %s (%s), %s, of %s", r.Key.ID, r.Key.Algorithm, r.Key.Role, r.KeyOrigin))
	}
	if r.Review != nil && r.Review.Authenticated {
		line("Accepted as", r.Review.User.Username+" ("+strings.Join(r.Review.User.Groups, ", ")+")")
		line("Opens API", map[bool]string{true: "yes", false: "no, it is for other audiences than kube-apiserver's"}[r.Review.OpensAPI])
	}
	table.Flush()
	for _, part := range []struct {
		name string
		json json.RawMessage
	}{{"Header", r.Header}, {"Claims", r.Claims}} {
		var indented bytes.Buffer
		if part.json == nil || json.Indent(&indented, part.json, "  ", "  ") != nil {
			continue
		}
		fmt.Fprintf(&b, "\n%s:\n", part.name)
		for one := range strings.Lines("  " + indented.String() + "\n") {
			fmt.Fprintln(&b, printers.Printable(strings.TrimSuffix(one, "\n")))
		}
	}
	return b.String()
}
