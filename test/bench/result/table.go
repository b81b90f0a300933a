// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Table renders one scenario as Markdown: a row for each variant and number, a column for
// each program, both in the order in which they were first measured. A cell has the
// median, the range if there were several repetitions, and the ratio to the reference.
func (r *Report) Table(scenario string) string {
	var programs []string
	var rows []Key
	cells := map[Key]string{}
	for _, s := range r.Series {
		if s.Scenario != scenario {
			continue
		}
		if !slices.Contains(programs, s.Program) {
			programs = append(programs, s.Program)
		}
		row := s.key()
		cells[row] = s.cell()
		row.Program = ""
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "| | %s |\n|---|%s\n", strings.Join(programs, " | "), strings.Repeat("---|", len(programs)))
	for _, row := range rows {
		fmt.Fprintf(&out, "| %s |", row.title())
		for _, program := range programs {
			key := row
			key.Program = program
			out.WriteString(" " + cells[key] + " |")
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func (k Key) title() string {
	title := k.Metric
	if k.Variant != "" {
		title = k.Variant + ": " + title
	}
	if k.Unit != "" {
		title += ", " + k.Unit
	}
	return title
}

func (s *Series) cell() string {
	text := Number(s.Median)
	if low, high := Number(slices.Min(s.Values)), Number(slices.Max(s.Values)); low != high {
		text += fmt.Sprintf(" (%s–%s)", low, high)
	}
	if s.Ratio > 0 {
		text += fmt.Sprintf(" **%sx**", Number(s.Ratio))
	}
	return text
}

// Number keeps two digits: the measurements scatter by more than a third one shows.
func Number(value float64) string {
	short, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 2, 64), 64)
	if err != nil {
		return strconv.FormatFloat(value, 'g', 2, 64)
	}
	return strconv.FormatFloat(short, 'f', -1, 64)
}

// About renders under which conditions the report was made.
func (r *Report) About() string {
	var out strings.Builder
	fmt.Fprintf(&out, "- Machine: %s\n", r.Machine)
	fmt.Fprintf(&out, "- Versions: %s\n", strings.Join(r.Versions, ", "))
	var sizes []string
	for _, name := range slices.Sorted(maps.Keys(r.Sizes)) {
		sizes = append(sizes, fmt.Sprintf("%s %d", name, r.Sizes[name]))
	}
	fmt.Fprintf(&out, "- Sizes: %s\n", strings.Join(sizes, ", "))
	for _, condition := range r.Conditions {
		fmt.Fprintf(&out, "- %s\n", condition)
	}
	if !r.Complete {
		out.WriteString("- **Not all of it was measured.**\n")
	}
	return out.String()
}
