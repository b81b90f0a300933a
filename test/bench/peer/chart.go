// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"fmt"
	"html"
	"strings"
)

const (
	chartTitle = "sa-controller-manager beside kube-controller-manager, which is 1 (dashed)"
	chartHint  = "Shorter is better. Default flags: the gap is kube-controller-manager's own limit, 20 requests a second"
)

// chart draws the times of changes and the memory as a bar of their ratio each. Its grey can be read on light and on dark ground.
func (r *Report) chart() string {
	const labels, width, row, head = 370, 250, 24, 56
	var bars []string
	var ratios []float64
	longest := 1.0 // where the dashed line is
	for _, one := range r.Rows {
		if ratio, ok := one.ratio(); ok && (strings.HasPrefix(one.Metric, "time, ") || strings.HasPrefix(one.Metric, "memory")) {
			what, _, _ := strings.Cut(one.Metric, ",")
			bars, ratios, longest = append(bars, one.Scenario+": "+what), append(ratios, ratio), max(longest, ratio)
		}
	}
	var out strings.Builder
	bottom := head + row*len(bars)
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 %d" role="img" aria-label="%s">`+"\n", bottom+16, chartTitle)
	out.WriteString(`<style>text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-size:15px;font-weight:600}rect{fill:#2f81f7}` +
		`line{stroke:#bf8700;stroke-dasharray:4 3}@media(prefers-color-scheme:dark){text{fill:#adbac7}}</style>` + "\n")
	fmt.Fprintf(&out, `<text class="t" x="16" y="22">%s</text><text x="16" y="42">%s</text>`+"\n", chartTitle, html.EscapeString(chartHint))
	for i, bar := range bars {
		y, length := head+row*i, ratios[i]/longest*width
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="end">%s</text>`, labels-8, y+14, html.EscapeString(bar))
		fmt.Fprintf(&out, `<rect x="%d" y="%d" width="%.1f" height="16" rx="2"/>`, labels, y+1, length)
		fmt.Fprintf(&out, `<text x="%.1f" y="%d">%s</text>`+"\n", labels+length+6, y+14, number(ratios[i]))
	}
	fmt.Fprintf(&out, `<line x1="%[1]d" y1="%[2]d" x2="%[1]d" y2="%[3]d"/>`+"\n</svg>\n", labels+int(width/longest), head-4, bottom)
	return out.String()
}
