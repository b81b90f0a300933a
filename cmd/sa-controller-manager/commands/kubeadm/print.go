// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
)

// devNull is the name of a missing file in a diff.
const devNull = "/dev/null"

// print prints every step with the changes to its files.
func (c *Config) print(steps []step) {
	for i, s := range steps {
		fmt.Fprintf(c.Out, "%d. %s: %s.\n", i+1, s.name, s.summary)
		for _, note := range s.notes {
			fmt.Fprintln(c.Out, note)
		}
		for _, w := range s.writes {
			if w.path == c.backup(s.name) {
				fmt.Fprintf(c.Out, "The manifest as it is now is kept in %s.\n", w.path)
				continue
			}
			fmt.Fprint(c.Out, w.diff())
		}
	}
}

// diff returns a unified diff.
func (w write) diff() string {
	if w.secret {
		return fmt.Sprintf("%s is written, with a private key.\n", w.path)
	}
	from, to := w.path, w.path
	if w.before == nil {
		from = devNull
	}
	if w.after == nil {
		to = devNull
	}
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: diffLines(w.before), B: diffLines(w.after), FromFile: from, ToFile: to, Context: 3,
	})
	if err != nil {
		return fmt.Sprintf("%s changes (%v)\n", w.path, err) // writing to memory does not fail
	}
	return text
}

// diffLines returns lines that all have a line end, so that the last line of a file without one does
// not run into the next line of the diff.
func diffLines(data []byte) []string {
	var lines []string
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(line, "\n") {
			line += "\n\\ No newline at end of file\n"
		}
		lines = append(lines, line)
	}
	return lines
}
