// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyview

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Drifted tells whether any line is not as it should be.
func Drifted(lines []Line) bool {
	for _, line := range lines {
		if line.Result != Same {
			return true
		}
	}
	return false
}

// Print writes a comparison as "table", "json" or "yaml".
func Print(w io.Writer, lines []Line, output string) error {
	document := struct {
		Keys []Line `json:"keys"`
	}{lines}
	var text []byte
	var err error
	switch output {
	case "json":
		text, err = JSON(document, "")
		text = append(text, '\n')
	case "yaml":
		text, err = YAML(document)
	default:
		text = table(lines)
	}
	if err != nil {
		return fmt.Errorf("encode the comparison as %s: %w", output, err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("print the comparison: %w", err)
	}
	return nil
}

func table(lines []Line) []byte {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "KEY-ID\tALGORITHM\tSTATE\tRESULT\tDETAIL")
	for _, line := range lines {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n",
			orNone(line.ID), orNone(line.Algorithm), orNone(string(line.State)), line.Result, Printable(line.Detail))
	}
	table.Flush()
	return []byte(b.String())
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return Printable(text)
}

// Printable keeps text of strangers from steering a terminal and from breaking a table: what cannot be seen is escaped.
func Printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, "\\u%04x", r)
	}
	return b.String()
}
