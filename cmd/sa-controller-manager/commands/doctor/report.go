// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"strings"

	"sa-controller-manager/internal/printers"
)

// report is what the command prints.
type report struct {
	printers.Head
	Findings []finding `json:"findings"`
	Checks   []result  `json:"checks"`
}

func newReport(results []result) *report {
	r := &report{Head: printers.Of("DoctorReport"), Findings: []finding{}, Checks: results}
	for _, result := range results {
		r.Findings = append(r.Findings, result.findings...)
	}
	return r
}

// table has a line for each check and below it a paragraph for each finding, because a
// remedy is a sentence or a command that must not be cut.
func (r *report) table() string {
	var b strings.Builder
	table := printers.Table(&b)
	fmt.Fprintln(table, "CHECK\tRESULT\tDETAIL")
	for _, result := range r.Checks {
		detail := cmp.Or(result.Error, result.Note)
		fmt.Fprintf(table, "%s\t%s\t%s\n", result.Name, result.Word, strings.ReplaceAll(detail, "\n", " "))
	}
	table.Flush()
	for i, finding := range r.Findings {
		fmt.Fprintf(&b, "\n%d. %s: %s\n", i+1, finding.Check, finding.Message)
		if len(finding.Objects) > 0 {
			fmt.Fprintf(&b, "   where:  %s\n", printers.Shorten(finding.Objects, len(finding.Objects)))
		}
		fmt.Fprintf(&b, "   remedy: %s\n", finding.Remedy)
		for _, command := range finding.Commands[:min(len(finding.Commands), printers.Shown)] {
			fmt.Fprintf(&b, "           %s\n", command)
		}
	}
	return b.String()
}
