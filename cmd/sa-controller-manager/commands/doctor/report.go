// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/printers"
)

// marks are how a terminal shows results that need the user: in red, or in bold if nothing is known.
var marks = map[string]string{"findings": "\x1b[31m", "unknown": "\x1b[1m"}

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

// widest is how many columns the table has at most.
const widest = 100

// table has each check and below it a paragraph for each finding, because a remedy is a sentence or a
// command that must not be cut. On a terminal, which has columns, lines are broken and words marked.
func (r *report) table(columns int) string {
	columns = min(columns, widest)
	var b strings.Builder
	table := printers.Table(&b)
	fmt.Fprintln(table, "CHECK\tRESULT\tDETAIL")
	for _, result := range r.Checks {
		detail := cmp.Or(result.Error, result.Note)
		fmt.Fprintf(table, "%s\t%s\t%s\n", result.Name, result.Word, strings.ReplaceAll(detail, "\n", " "))
	}
	table.Flush()
	lines := strings.Split(b.String(), "\n")
	detail := strings.Index(lines[0], "DETAIL")
	for i, result := range r.Checks {
		folded := cli.Fold(lines[i+1], detail, columns)
		if code := marks[result.Word]; code != "" && columns > 0 && os.Getenv("NO_COLOR") == "" {
			at := strings.Index(lines[0], "RESULT")
			folded = folded[:at] + code + result.Word + "\x1b[0m" + folded[at+len(result.Word):]
		}
		lines[i+1] = folded
	}
	b.Reset()
	b.WriteString(strings.Join(lines, "\n"))
	for i, finding := range r.Findings {
		fmt.Fprintf(&b, "\n%s\n", cli.Fold(fmt.Sprintf("%d. %s: %s", i+1, finding.Check, finding.Message), 3, columns))
		if len(finding.Objects) > 0 {
			where := printers.Shorten(finding.Objects, len(finding.Objects))
			fmt.Fprintln(&b, cli.Fold("   where:  "+where, 11, columns))
		}
		fmt.Fprintln(&b, cli.Fold("   remedy: "+finding.Remedy, 11, columns))
		for _, command := range finding.Commands[:min(len(finding.Commands), printers.Shown)] {
			fmt.Fprintf(&b, "           %s\n", command)
		}
	}
	return b.String()
}
