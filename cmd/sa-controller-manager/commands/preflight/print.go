// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
)

// report is what the command prints.
type report struct {
	printers.Head
	User        string          `json:"user"`
	Findings    []check.Finding `json:"findings"`
	Permissions []permission    `json:"permissions"`
}

// permission is the answer to one question.
type permission struct {
	Answer string `json:"answer"`
	permissions.Access
	For   []permissions.Part `json:"for"`
	Error string             `json:"error,omitempty"`
}

func newReport(r permissions.Report, rules []permissions.Rule, findings []check.Finding) *report {
	report := &report{
		Head: printers.Of("PreflightReport"), User: r.User,
		Findings: append([]check.Finding{}, findings...), Permissions: []permission{},
	}
	for _, answer := range r.Answers {
		line := permission{Answer: "missing", Access: answer.Access, For: permissions.PartsOf(answer.Access, rules)}
		switch {
		case answer.Err != nil:
			line.Answer, line.Error = "unknown", answer.Err.Error()
		case answer.Granted:
			line.Answer = "granted"
		}
		report.Permissions = append(report.Permissions, line)
	}
	return report
}

// table has one line for each question, and the findings below.
func (r *report) table() string {
	var b strings.Builder
	out := printers.Table(&b)
	fmt.Fprintln(out, "ANSWER\tVERB\tRESOURCE\tNAMESPACE\tNAME\tFOR")
	for _, p := range r.Permissions {
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Answer, p.Verb, cmp.Or(p.Path, p.FullResource()), cmp.Or(p.Namespace, "*"),
			cmp.Or(p.Name, "*"), strings.ReplaceAll(strings.Trim(fmt.Sprint(p.For), "[]"), " ", ","))
	}
	out.Flush()
	check.Print(&b, r.Findings, 0)
	return b.String()
}
