// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package jwks

import (
	"fmt"
	"io"
	"strings"

	"sa-controller-manager/internal/printers"
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
	return printers.Document(w, output, "the comparison", document, func() string { return table(lines) })
}

func table(lines []Line) string {
	var b strings.Builder
	table := printers.Table(&b)
	fmt.Fprintln(table, "KEY-ID\tALGORITHM\tSTATE\tRESULT\tDETAIL")
	for _, line := range lines {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n",
			printers.OrNone(line.ID), printers.OrNone(line.Algorithm), printers.OrNone(string(line.State)), line.Result, printers.Printable(line.Detail))
	}
	table.Flush()
	return b.String()
}
