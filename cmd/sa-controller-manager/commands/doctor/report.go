// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
)

// marks are how a terminal shows results that need the user: in red, or in bold if nothing is known.
var marks = map[string]string{"findings": "\x1b[31m", "unknown": "\x1b[1m"}

// report is what the command prints.
type report struct {
	printers.Head
	Findings []check.Finding `json:"findings"`
	Checks   []result        `json:"checks"`
}

func newReport(results []result) *report {
	r := &report{Head: printers.Of("DoctorReport"), Findings: []check.Finding{}, Checks: results}
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
		detail := strings.ReplaceAll(cmp.Or(result.Error, result.Note), "\n", " ")
		fmt.Fprintf(table, "%s\t%s\t%s\n", result.Name, result.Word, printers.Printable(detail))
	}
	table.Flush()
	lines := strings.Split(b.String(), "\n")
	word, detail := strings.Index(lines[0], "RESULT"), strings.Index(lines[0], "DETAIL")
	for i, result := range r.Checks {
		line := printers.Fold(lines[i+1], detail, columns)
		if code := marks[result.Word]; code != "" && columns > 0 && os.Getenv("NO_COLOR") == "" {
			line = line[:word] + code + result.Word + "\x1b[0m" + line[word+len(result.Word):]
		}
		lines[i+1] = line
	}
	b.Reset()
	b.WriteString(strings.Join(lines, "\n"))
	check.Print(&b, r.Findings, columns)
	return b.String()
}

// outcome prints a summary in one line and decides the exit code: findings are certain, even if
// other checks could not be completed.
func (r *report) outcome(stderr io.Writer) error {
	skips, unknown := 0, []string(nil)
	for _, result := range r.Checks {
		switch {
		case result.Error != "":
			unknown = append(unknown, result.Name)
		case result.Word == "skipped":
			skips++
		}
	}
	fmt.Fprintf(stderr, "Findings: %d. Checks completed: %d, skipped: %d", len(r.Findings), len(r.Checks)-len(unknown)-skips, skips)
	if len(unknown) > 0 {
		fmt.Fprintf(stderr, ", not completed: %s", strings.Join(unknown, " "))
	}
	fmt.Fprintln(stderr, ".")
	switch {
	case len(r.Findings) > 0:
		return cli.ErrFindings
	case len(unknown) > 0:
		return cli.ErrReported
	}
	return nil
}
