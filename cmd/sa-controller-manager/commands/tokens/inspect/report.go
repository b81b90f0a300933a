// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/cmd/sa-controller-manager/commands/jwks"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// Report is what is said of a token. Its JSON form is that of the command's output.
type Report struct {
	Verdict Verdict `json:"verdict"`
	// Reasons are why it is not valid, or why that is not known.
	Reasons []string `json:"reasons,omitempty"`
	Notes   []string `json:"notes,omitempty"`

	// What the token says. All of it is empty if it is malformed.
	Form      tokens.Form  `json:"form,omitempty"`
	Subject   string       `json:"subject,omitempty"`
	Account   *Account     `json:"account,omitempty"`
	Secret    string       `json:"secret,omitempty"`
	Bound     []Object     `json:"boundTo,omitempty"`
	Issuer    string       `json:"issuer,omitempty"`
	Audiences []string     `json:"audiences,omitempty"`
	IssuedAt  *metav1.Time `json:"issuedAt,omitempty"`
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	Expires   *metav1.Time `json:"expires,omitempty"`
	KeyID     string       `json:"keyID,omitempty"`
	Algorithm string       `json:"algorithm,omitempty"`

	// Key is the one that made the signature, nil if none is known to have.
	Key    *Key    `json:"key,omitempty"`
	Review *Review `json:"review,omitempty"`

	Header json.RawMessage `json:"header,omitempty"`
	Claims json.RawMessage `json:"claims,omitempty"`
	// Signature is there if the person asked for it.
	Signature string `json:"signature,omitempty"`

	now       time.Time
	signature string
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

// Key is the key that signed a token.
type Key struct {
	ID        string     `json:"keyID"`
	Algorithm string     `json:"algorithm"`
	State     jwks.State `json:"state"`
	Origin    string     `json:"origin"`
}

// describe is what the token says of itself.
func describe(e *tokens.Examination, now time.Time) Report {
	r := Report{
		Form: e.Form, Subject: e.Subject, Secret: e.SecretName, Issuer: e.Issuer, Audiences: e.Audiences,
		IssuedAt: stamp(e.IssuedAt), NotBefore: stamp(e.NotBefore), Expires: stamp(e.Expires),
		KeyID: e.KeyID, Algorithm: e.Algorithm, Header: valid(e.Header), Claims: valid(e.Claims), now: now, signature: e.Signature,
	}
	if e.Form != tokens.OtherForm {
		r.Account = &Account{Namespace: e.Account.Namespace, Name: e.Account.Name, UID: e.Account.UID}
	}
	for _, bound := range e.Bound {
		r.Bound = append(r.Bound, Object{Kind: bound.Kind, Name: bound.Name, UID: bound.UID})
	}
	return r
}

// valid: encoding/json reads text that is no UTF-8, and YAML cannot hold it.
func valid(text json.RawMessage) json.RawMessage { return bytes.ToValidUTF8(text, []byte("\ufffd")) }

// ShowSignature puts the signature into what is printed.
func (r *Report) ShowSignature() { r.Signature = r.signature }

func stamp(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

func publicKeys(keys []jwks.Key) []signing.PublicKey {
	all := make([]signing.PublicKey, 0, len(keys))
	for _, key := range keys {
		all = append(all, key.PublicKey)
	}
	return all
}
