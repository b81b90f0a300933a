// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/internal/printers"
	"sa-controller-manager/tokens"
)

// Print writes the report as "text", "json" or "yaml".
func (r *Report) Print(w io.Writer, output string) error {
	return printers.Document(w, output, r, r.text)
}

// text has the verdict first, because the rest is long.
func (r *Report) text() string {
	var b strings.Builder
	table := printers.Table(&b)
	line := func(name, value string) { fmt.Fprintf(table, "%s:\t%s\n", name, printers.Printable(value)) }
	line("Verdict", string(r.Verdict))
	for _, reason := range r.Findings {
		line("Because", reason.Message)
	}
	for _, note := range r.Notes {
		line("Note", note.Message)
	}
	if r.Form != "" {
		r.lines(line)
	}
	table.Flush()
	for _, part := range []struct {
		name string
		json json.RawMessage
	}{{"Header", r.Header}, {"Claims", r.Claims}} {
		if part.json != nil {
			fmt.Fprintf(&b, "\n%s:\n%s\n", part.name, indented(part.json))
		}
	}
	return b.String()
}

func (r *Report) lines(line func(name, value string)) {
	line("Form", r.form())
	line("Subject", printers.OrNone(r.Subject))
	if r.Account != nil {
		line("Account", fmt.Sprintf("%s/%s, UID %s", r.Account.Namespace, r.Account.Name, printers.OrNone(r.Account.UID)))
	}
	if r.Secret != "" {
		line("Secret", r.Secret)
	}
	for _, bound := range r.Bound {
		line("Bound to", fmt.Sprintf("%s %s, UID %s", bound.Kind, bound.Name, bound.UID))
	}
	line("Issuer", printers.OrNone(r.Issuer))
	line("Audiences", printers.OrNone(strings.Join(r.Audiences, ", ")))
	line("Issued", r.timeOr(r.IssuedAt, "<unknown>"))
	if !r.NotBefore.IsZero() && !r.NotBefore.Equal(&r.IssuedAt) {
		line("Not before", r.timeOr(r.NotBefore, ""))
	}
	line("Expires", r.timeOr(r.Expires, "never"))
	line("Key ID", printers.OrNone(r.KeyID))
	line("Algorithm", printers.OrNone(r.Algorithm))
	if r.Key != nil {
		line("Signed with", fmt.Sprintf("key %s (%s), %s, of %s", r.Key.ID, r.Key.Algorithm, r.Key.Role, r.KeyOrigin))
	}
	if r.Review != nil && r.Review.Authenticated {
		line("Accepted as", r.Review.User+" ("+strings.Join(r.Review.Groups, ", ")+")")
		line("Opens API", map[bool]string{
			true: "yes", false: "no: it is for others than kube-apiserver, by its audiences",
		}[r.Review.OpensAPI])
	}
	if r.Signature != "" {
		line("Signature", r.Signature)
	}
}

func (r *Report) form() string {
	switch r.Form {
	case tokens.LegacyForm:
		return "legacy, of a token Secret"
	case tokens.BoundForm:
		return "bound, of a TokenRequest"
	default:
		return "not that of a ServiceAccount token"
	}
}

func (r *Report) timeOr(t metav1.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return t.UTC().Format(time.RFC3339) + " (" + when(t.Time, r.now) + ")"
}

// indented is JSON for a terminal.
func indented(text json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "  ", "  "); err != nil {
		return "" // it has been read before, so it is JSON
	}
	lines := strings.Split("  "+b.String(), "\n")
	for i := range lines {
		lines[i] = printers.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}
