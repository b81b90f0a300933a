// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"sa-controller-manager/internal/printers"
)

// Printer writes rows as they come. Without End a document is cut off, so that nobody takes a
// part for all.
type Printer interface {
	Rows(rows []Row) error
	End(summary Summary) error
}

// NewPrinter writes a "table", a "wide" one, "json", "yaml" or "html".
func NewPrinter(w io.Writer, output string, now time.Time) Printer {
	switch output {
	case "json", "yaml":
		return &printers.List[Row, Summary]{W: w, Output: output, Head: printers.Of("TokenAudit"), RowsField: "tokens", EndField: "summary"}
	case htmlOutput:
		return &htmlPrinter{w: w, now: now}
	}
	return &tablePrinter{w: w, wide: output == "wide", now: now}
}

// tablePrinter aligns the rows of a page, and makes columns as wide as any page before needed:
// nothing is kept until the end.
type tablePrinter struct {
	w      io.Writer
	wide   bool
	now    time.Time
	widths []int
}

func (p *tablePrinter) Rows(rows []Row) error {
	var lines [][]string
	if p.widths == nil {
		lines = append(lines, p.header())
		p.widths = make([]int, len(lines[0]))
	}
	for i := range rows {
		lines = append(lines, p.cells(&rows[i]))
	}
	for _, line := range lines {
		for i, cell := range line {
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		p.format(&b, line)
	}
	if _, err := io.WriteString(p.w, b.String()); err != nil {
		return fmt.Errorf("print the tokens: %w", err)
	}
	return nil
}

// format leaves no blanks at the end of a line.
func (p *tablePrinter) format(b *strings.Builder, line []string) {
	for i, cell := range line {
		b.WriteString(cell)
		if i < len(line)-1 {
			b.WriteString(strings.Repeat(" ", p.widths[i]-utf8.RuneCountInString(cell)+3))
		}
	}
	b.WriteByte('\n')
}

func (*tablePrinter) End(Summary) error { return nil }

func (p *tablePrinter) header() []string {
	header := []string{"NAMESPACE", "NAME", "ACCOUNT", "AGE", "KEY", "STATE", "LAST-USED", "PODS", "FINDINGS"}
	if p.wide {
		header = append(header, "INVALID-SINCE", "REFERENCED", "USED-BY", "REACH", "WHY")
	}
	return header
}

// shortID is enough of a key ID to tell keys apart, and for --key-id.
const shortID = 8

func (p *tablePrinter) cells(row *Row) []string {
	keyID := row.KeyID
	if !p.wide && len(keyID) > shortID {
		keyID = keyID[:shortID]
	}
	var findings []string
	for _, finding := range row.Findings {
		findings = append(findings, string(finding))
	}
	cells := []string{
		row.Namespace, row.Name, row.Account, duration.HumanDuration(p.now.Sub(row.Created.Time)), keyID, string(row.State),
		cmp.Or(row.LastUsed, "never"), strconv.Itoa(row.PodCount), strings.Join(findings, ","),
	}
	if p.wide {
		why := row.Problem
		if row.ReachBy != "" {
			why = strings.TrimPrefix(why+"; "+row.ReachBy, "; ")
		}
		cells = append(cells, row.InvalidSince, map[bool]string{true: "yes", false: "no"}[row.Referenced], row.users(), string(row.Reach), why)
	}
	for i, cell := range cells {
		// Labels, annotations and key IDs are what anybody has written there.
		cells[i] = printers.OrNone(cell)
	}
	return cells
}
