// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
)

// chart draws some series of a report as horizontal bars from zero.
type chart struct {
	title, unit string
	of          Key // a bar for each series with these members, as far as they are not empty
	ratio       bool
}

// Charts are those of the page: SVG by the name of its file.
func (r *Report) Charts() map[string]string {
	drawn := map[string]string{}
	for name, c := range map[string]chart{
		"speed": {
			title: "Time of sa-controller-manager; kube-controller-manager is 1 (dashed)",
			unit:  "Shorter is faster. Default flags: the gap is kube-controller-manager's own limit, 20 requests a second",
			of:    Key{Metric: "time", Program: "sa-controller-manager, `manual`"}, ratio: true,
		},
		"memory": {
			title: "Steady memory after a restart", unit: "MiB of RssAnon",
			of: Key{Scenario: "restart", Metric: "steady memory, RssAnon"},
		},
		"webhook": {
			title: "What admission adds to the creation of a Pod", unit: "ms at p50, one client",
			of: Key{Scenario: "pods", Variant: "one client", Metric: "added p50"},
		},
	} {
		if svg := c.draw(r); svg != "" {
			drawn[name] = svg
		}
	}
	return drawn
}

// matches reports whether a series belongs to the chart.
func (c chart) matches(s Series) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(c.of.Scenario, s.Scenario) && is(c.of.Variant, s.Variant) && is(c.of.Metric, s.Metric) && is(c.of.Program, s.Program) &&
		(!c.ratio || s.Ratio > 0)
}

// draw returns "" without a series. The text has a grey that can be read on light and on dark ground.
func (c chart) draw(r *Report) string {
	const width, margin, labels, numbers, row, head = 720, 16, 330, 80, 24, 56
	series := slices.DeleteFunc(slices.Clone(r.Series), func(s Series) bool { return !c.matches(s) })
	if len(series) == 0 {
		return ""
	}
	value := func(s Series) float64 {
		if c.ratio {
			return s.Ratio
		}
		return max(0, s.Median)
	}
	longest := 1.0 // where the line is that ratios are compared with
	for _, s := range series {
		longest = max(longest, value(s))
	}
	pixels := func(v float64) float64 { return v / longest * (width - labels - numbers - margin) }
	height := head + row*len(series) + margin
	var out strings.Builder
	title, unit := html.EscapeString(c.title), html.EscapeString(c.unit)
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n", width, height, title)
	out.WriteString(`<style>text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-size:15px;font-weight:600}` +
		`.a{fill:#2f81f7}.b{fill:#8c959f}.m{stroke:#bf8700;stroke-dasharray:4 3}` +
		`@media(prefers-color-scheme:dark){text{fill:#adbac7}}</style>` + "\n")
	fmt.Fprintf(&out, `<text class="t" x="%d" y="22">%s</text><text x="%d" y="42">%s</text>`+"\n", margin, title, margin, unit)
	for i, s := range series {
		y, length, class := head+row*i, pixels(value(s)), "b"
		if strings.HasPrefix(s.Program, "sa-controller-manager") {
			class = "a"
		}
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="end">%s</text>`, labels-8, y+14, html.EscapeString(c.label(r, s)))
		fmt.Fprintf(&out, `<rect class="%s" x="%d" y="%d" width="%.1f" height="16" rx="2"/>`, class, labels, y+1, length)
		fmt.Fprintf(&out, `<text x="%.1f" y="%d">%s</text>`+"\n", labels+length+6, y+14, number(value(s)))
	}
	if c.ratio {
		x := labels + pixels(1)
		fmt.Fprintf(&out, `<line class="m" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`+"\n", x, head-4, x, height-margin)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// label says what was measured, as far as the title of the chart does not.
func (c chart) label(r *Report, s Series) string {
	what := map[string]string{"namespaces": "namespaces", "secrets": "token Secrets", "deletions": "deleted accounts"}[s.Scenario]
	switch {
	case c.ratio && what != "":
		return strconv.Itoa(r.Sizes[what]) + " " + what + ", " + s.Variant
	case c.of.Variant != "":
		return s.Program
	}
	return strings.NewReplacer(", `manual`", "", "kube-controller-manager", "KCM").Replace(s.Program) + ", " + s.Variant
}
