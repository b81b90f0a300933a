// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package printers

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
)

// Table aligns cells that end with a tab, once it is flushed.
func Table(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 3, ' ', 0) }

// OrNone is Printable for a cell that may be empty.
func OrNone(text string) string { return Printable(cmp.Or(text, "<none>")) }

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
