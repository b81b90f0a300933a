// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// Known is what the person knows besides the token.
type Known struct {
	Now time.Time
	// Keys are those that may have signed it.
	Keys []signing.Key
	// Issuers are those of the cluster's bound tokens. Without any the issuer is not checked.
	Issuers []string
	// Review is what kube-apiserver said, nil if it was not asked.
	Review *Review
	// ShowSignature puts the signature into the report.
	ShowSignature bool
}

// Verdict sums up.
type Verdict string

const (
	// Valid means: nothing speaks against the token.
	Valid Verdict = "valid"
	// Invalid means: something does.
	Invalid Verdict = "invalid"
	// Untold means: it could not be found out, for want of keys.
	Untold Verdict = "unknown"
)

// Evaluate examines a token as kube-apiserver reads it. It never fails: that something is no token is
// a verdict too.
func Evaluate(token string, known Known) Report {
	canonical := tokens.Canonical(token)
	e, err := tokens.Examine(canonical)
	if err != nil {
		return Report{Head: printers.Of(kind), Verdict: Invalid, Findings: []check.Finding{{Code: "malformed", Message: err.Error()}},
			now: known.Now}
	}
	report := describe(&e, known.Now)
	report.Review = known.Review
	if known.ShowSignature {
		report.Signature = e.Signature
	}
	signed := report.checkSignature(canonical, known)
	report.addTimes(&e, known.Now)
	if problem := issuerProblem(&e, known.Issuers); problem != "" {
		report.find("wrong-issuer", problem)
	}
	if canonical != token {
		report.note("respelled", "it is spelled otherwise than it was issued, by white space or by bits that base64url leaves over: "+
			"kube-apiserver reads over that, and others may refuse it")
	}
	report.addNotes(&e, known)
	report.decide(signed)
	return report
}

// checkSignature reports whether a key is known to have made the signature.
func (r *Report) checkSignature(token string, known Known) bool {
	if len(known.Keys) == 0 {
		return false
	}
	key, err := keys.SignedWith(token, known.Keys)
	switch {
	case err == nil:
		r.Key, r.KeyOrigin = &key, key.Origin
		return true
	case errors.Is(err, tokens.ErrUnknownKey):
		r.find("unknown-key", fmt.Sprintf("none of the %d keys that were given has its key ID", len(keys.Public(known.Keys))))
	case r.KeyID == "":
		r.find("wrong-signature", "it has no key ID, and none of the keys that were given made its signature")
	default:
		r.find("wrong-signature", "the signature is wrong: the key that its header names has not made it")
	}
	return false
}

// addTimes follows kube-apiserver (k8s.io/kubernetes pkg/serviceaccount/claims.go), but for the
// minute that it allows clocks to differ. It ignores the times of a legacy token.
func (r *Report) addTimes(e *tokens.Examination, now time.Time) {
	if e.Form == tokens.LegacyForm {
		return
	}
	if !e.Expires.IsZero() && now.After(e.Expires) {
		r.find("expired", "it has expired "+when(e.Expires, now))
	}
	if now.Before(e.NotBefore) {
		r.find("not-yet-valid", "it is not valid yet: it will be "+when(e.NotBefore, now))
	}
	if now.Before(e.IssuedAt) {
		r.find("issued-in-future", "it says that it will be issued "+when(e.IssuedAt, now)+": a clock is wrong")
	}
}

// when is a time as people say it.
func when(t, now time.Time) string {
	if t.After(now) {
		return "in " + duration.HumanDuration(t.Sub(now))
	}
	return duration.HumanDuration(now.Sub(t)) + " ago"
}

func issuerProblem(e *tokens.Examination, issuers []string) string {
	switch {
	case e.Form == tokens.LegacyForm || len(issuers) == 0 || slices.Contains(issuers, e.Issuer):
		return ""
	case len(issuers) == 1:
		return "the issuer is another one than " + issuers[0]
	}
	return "the issuer is none of " + strings.Join(issuers, ", ")
}

// addNotes says what a person might not think of.
func (r *Report) addNotes(e *tokens.Examination, known Known) {
	if known.Review == nil && e.Form == tokens.LegacyForm {
		r.note("not-reviewed", "kube-apiserver takes it only while its Secret and account live and the Secret holds this very token: "+
			"--cluster asks it")
	}
	if known.Review == nil && e.Form == tokens.BoundForm {
		r.note("not-reviewed", "kube-apiserver takes it only while its account, and what it is bound to, live: --cluster asks it")
	}
	if e.Form == tokens.OtherForm {
		r.note("no-service-account", "it names no ServiceAccount: it is another program's")
	}
	if e.Form == tokens.BoundForm && e.Expires.IsZero() {
		r.note("never-expires", "it never expires")
	}
	if e.Form == tokens.BoundForm && len(e.Audiences) == 0 {
		r.note("no-audience", "it has no audience, which kube-apiserver takes for its own")
	}
	if e.Form == tokens.BoundForm && len(known.Issuers) == 0 {
		r.note("issuer-not-compared", "the issuer was not compared: give --service-account-issuer or --cluster")
	}
}

func (r *Report) find(code, message string) {
	r.Findings = append(r.Findings, check.Finding{Code: code, Message: message})
}

func (r *Report) note(code, message string) {
	r.Notes = append(r.Notes, check.Finding{Code: code, Message: message})
}

// decide: kube-apiserver's word counts more than ours. What speaks against a token that it accepts
// becomes a note.
func (r *Report) decide(signed bool) {
	switch {
	case r.Review != nil && r.Review.Authenticated:
		r.Verdict = Valid
		for _, reason := range r.Findings {
			r.note(reason.Code, "kube-apiserver accepts it, and yet "+reason.Message)
		}
		r.Findings = []check.Finding{}
	case r.Review != nil:
		r.Verdict = Invalid
		r.find("refused", "kube-apiserver refuses it: "+r.Review.reason())
	case len(r.Findings) > 0:
		r.Verdict = Invalid
	case signed:
		r.Verdict = Valid
	default:
		r.Verdict = Untold
		r.find("no-key", "there is no key to verify the signature with: give --service-account-key-file, --jwks or --cluster")
	}
}
