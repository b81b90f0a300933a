// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

const kind = "TokenInspection"

// Report is what is said of a token. Its JSON form is that of the command's output.
type Report struct {
	printers.Head
	Verdict Verdict `json:"verdict"`
	// Findings are why it is not valid, or why that is not known.
	Findings []check.Finding `json:"findings"`
	Notes    []check.Finding `json:"notes,omitempty"`

	// What the token says. All of it is empty if it is malformed.
	Form      tokens.Form `json:"form,omitempty"`
	Subject   string      `json:"subject,omitempty"`
	Account   *Account    `json:"account,omitempty"`
	Secret    string      `json:"secret,omitempty"`
	Bound     []Object    `json:"boundTo,omitempty"`
	Issuer    string      `json:"issuer,omitempty"`
	Audiences []string    `json:"audiences,omitempty"`
	IssuedAt  metav1.Time `json:"issuedAt,omitzero"`
	NotBefore metav1.Time `json:"notBefore,omitzero"`
	Expires   metav1.Time `json:"expires,omitzero"`
	KeyID     string      `json:"keyID,omitempty"`
	Algorithm string      `json:"algorithm,omitempty"`

	// Key is the one that made the signature, nil if none is known to have.
	Key       *signing.Key `json:"key,omitempty"`
	KeyOrigin string       `json:"keyOrigin,omitempty"`
	Review    *Review      `json:"review,omitempty"`

	Header json.RawMessage `json:"header,omitempty"`
	Claims json.RawMessage `json:"claims,omitempty"`
	// Signature is there if the person asked for it.
	Signature string `json:"signature,omitempty"`

	now time.Time
}

// Account is the ServiceAccount that a token is of.
type Account struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Object is what a token is bound to.
type Object struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// describe is what the token says of itself.
func describe(e *tokens.Examination, now time.Time) Report {
	r := Report{
		Head: printers.Of(kind), Findings: []check.Finding{},
		Form: e.Form, Subject: e.Subject, Secret: e.SecretName, Issuer: e.Issuer, Audiences: e.Audiences,
		IssuedAt: metav1.NewTime(e.IssuedAt), NotBefore: metav1.NewTime(e.NotBefore), Expires: metav1.NewTime(e.Expires),
		KeyID: e.KeyID, Algorithm: e.Algorithm, Header: valid(e.Header), Claims: valid(e.Claims), now: now,
	}
	if e.Form != tokens.OtherForm {
		r.Account = new(Account(e.Account))
	}
	for _, bound := range e.Bound {
		r.Bound = append(r.Bound, Object(bound))
	}
	return r
}

// valid: encoding/json reads text that is no UTF-8, and YAML cannot hold it.
func valid(text json.RawMessage) json.RawMessage { return bytes.ToValidUTF8(text, []byte("\ufffd")) }
