// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// table renders one scenario as Markdown: a row for each variant and number, a column for
// each program, both in the order in which they were first measured. A cell has the
// median, the range if there were several repetitions, and the ratio to the reference.
func (r *Report) table(scenario string) string {
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
	text := number(s.Median)
	if low, high := number(slices.Min(s.Values)), number(slices.Max(s.Values)); low != high {
		text += fmt.Sprintf(" (%s–%s)", low, high)
	}
	if s.Ratio > 0 {
		text += fmt.Sprintf(" **%sx**", number(s.Ratio))
	}
	return text
}

// number keeps two digits: the measurements scatter by more than a third one shows.
func number(value float64) string { return strconv.FormatFloat(digits(value, 2), 'f', -1, 64) }

// about renders under which conditions the report was made.
func (r *Report) about() string {
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

var marked = regexp.MustCompile(`(?s)(<!-- (results|about): ([a-z0-9-]+) -->\n).*?(<!-- end -->)`)

// Fill replaces what is between the markers of a page:
//
//	<!-- results: SCENARIO -->
//	<!-- end -->
//
// becomes the table of a scenario, and "about" with the name of a report its conditions. What no report
// has is left as it is.
func Fill(page string, reports ...*Report) string {
	return marked.ReplaceAllStringFunc(page, func(old string) string {
		match := marked.FindStringSubmatch(old)
		for _, r := range reports {
			content := ""
			switch {
			case match[2] == "results":
				content = r.table(match[3])
			case match[3] == r.Name:
				content = r.about()
			}
			if content != "" {
				return match[1] + content + match[4]
			}
		}
		return old
	})
}
