// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"sa-controller-manager/internal/paging"
	"sa-controller-manager/internal/printers"
)

// Print prints the report as a "table", a "wide" one, "json", "yaml", HTML, SARIF or by a JSONPath template.
func Print(w io.Writer, output string, report *Report, now time.Time) error {
	switch output {
	case HTML:
		return printPage(w, report, now)
	case SARIF:
		text, err := printers.JSON(sarif(report))
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	case "yaml":
		return printYAML(w, report)
	}
	return printers.Document(w, output, report, func() string { return table(report.Tokens, output == "wide", now) })
}

// printYAML encodes a page of rows at a time, because the encoder takes much memory for each.
func printYAML(w io.Writer, report *Report) error {
	text, err := printers.YAML(Report{report.Head, []Row{}, report.Summary})
	if len(report.Tokens) > 0 {
		text = append(bytes.TrimSuffix(text, []byte(" []\n")), '\n') // tokens is the last field
	}
	for page := range slices.Chunk(report.Tokens, paging.Size) {
		rows, failed := printers.YAML(page)
		text, err = append(text, rows...), cmp.Or(err, failed)
	}
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

func table(rows []Row, wide bool, now time.Time) string {
	if len(rows) == 0 {
		return ""
	}
	lines := [][]string{{"NAMESPACE", "NAME", "ACCOUNT", "AGE", "KEY", "STATE", "LAST-USED", "PODS", "FINDINGS"}}
	if wide {
		lines[0] = append(lines[0], "INVALID-SINCE", "REFERENCED", "USED-BY", "REACH", "WHY")
	}
	for i := range rows {
		lines = append(lines, cells(&rows[i], wide, now))
	}
	var b strings.Builder
	table := printers.Table(&b)
	for _, line := range lines {
		fmt.Fprintln(table, strings.Join(line, "\t"))
	}
	table.Flush()
	return b.String()
}

// shortID is enough of a key ID to tell keys apart, and for --key-id.
const shortID = 8

func cells(row *Row, wide bool, now time.Time) []string {
	keyID := row.KeyID
	if !wide && len(keyID) > shortID {
		keyID = keyID[:shortID]
	}
	var findings []string
	for _, finding := range row.Findings {
		findings = append(findings, string(finding))
	}
	cells := []string{
		row.Namespace, row.Name, row.Account, duration.HumanDuration(now.Sub(row.Created.Time)), keyID, string(row.State),
		cmp.Or(row.LastUsed, "never"), strconv.Itoa(row.PodCount), strings.Join(findings, ","),
	}
	if wide {
		why := row.Problem
		if row.ReachBy != "" {
			why = strings.TrimPrefix(why+"; "+row.ReachBy, "; ")
		}
		cells = append(cells, row.InvalidSince, map[bool]string{true: "yes", false: "no"}[row.Referenced], row.users(), string(row.Reach),
			why)
	}
	for i, cell := range cells {
		// Labels, annotations and key IDs are what anybody has written there.
		cells[i] = printers.OrNone(cell)
	}
	return cells
}
