// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"sa-controller-manager/internal/printers"
)

// shownObjects is how many objects of a finding people are shown.
const shownObjects = 5

// Report is what Run returned, to be printed.
type Report []Result

// Findings are those of all checks.
func (r Report) Findings() []Finding {
	findings := []Finding{}
	for _, result := range r {
		findings = append(findings, result.findings...)
	}
	return findings
}

// Unknown are the names of the checks that could not tell.
func (r Report) Unknown() []string {
	var names []string
	for _, result := range r {
		if result.Error != "" {
			names = append(names, result.Name)
		}
	}
	return names
}

// Print writes the report as "table", "json" or "yaml".
func (r Report) Print(w io.Writer, output string) error {
	document := struct {
		Findings []Finding `json:"findings"`
		Checks   []Result  `json:"checks"`
	}{r.Findings(), append([]Result{}, r...)}
	return printers.Document(w, output, "the findings", document, r.table)
}

// table has a line for each check and below it a paragraph for each finding, because a
// mend is a sentence or a command that must not be cut.
func (r Report) table() string {
	var b strings.Builder
	table := printers.Table(&b)
	fmt.Fprintln(table, "CHECK\tRESULT\tDETAIL")
	for _, result := range r {
		detail := cmp.Or(result.Error, result.Note)
		fmt.Fprintf(table, "%s\t%s\t%s\n", result.Name, result.Word, strings.ReplaceAll(detail, "\n", " "))
	}
	table.Flush()
	for i, finding := range r.Findings() {
		fmt.Fprintf(&b, "\n%d. %s: %s\n", i+1, finding.Check, finding.Problem)
		if len(finding.Objects) > 0 {
			fmt.Fprintf(&b, "   where: %s\n", shorten(finding.Objects))
		}
		fmt.Fprintf(&b, "   mend:  %s\n", finding.Mend)
	}
	return b.String()
}

func shorten(names []string) string {
	if more := len(names) - shownObjects; more > 0 {
		return fmt.Sprintf("%s and %d more (-o json has all)", strings.Join(names[:shownObjects], ", "), more)
	}
	return strings.Join(names, ", ")
}
