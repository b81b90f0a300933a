// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart draws small SVG charts that can be read on light and on dark ground. What
// it is given is drawn in the order given. Equal input makes equal bytes.
package chart

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"

	"sa-controller-manager/test/bench/result"
)

const (
	width  = 720
	margin = 16
	// labels is the room left of the bars.
	labels = 330
	// numbers is the room right of the longest bar.
	numbers = 80
	row     = 24
	head    = 56
)

// style follows the reader's ground where the viewer tells it; else it is legible on both.
const style = `<style>text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-size:15px;font-weight:600}` +
	`.a{fill:#2f81f7}.b{fill:#8c959f}.m{stroke:#bf8700;stroke-dasharray:4 3}@media(prefers-color-scheme:dark){text{fill:#adbac7}}</style>`

// Bar is one value.
type Bar struct {
	Label string
	Value float64
	Ours  bool // drawn in the colour of the product
}

// Bars is a chart of horizontal bars from zero. Mark, unless 0, is a line to compare with.
// Values below zero are drawn as none, with their number.
type Bars struct {
	Title, Unit string
	Mark        float64
	Bars        []Bar
}

// SVG draws it.
func (c Bars) SVG() string {
	longest := c.Mark
	for _, bar := range c.Bars {
		longest = max(longest, bar.Value)
	}
	s := scale{longest, width - labels - numbers - margin}
	height := head + row*len(c.Bars) + margin
	var out strings.Builder
	open(&out, c.Title, c.Unit, height)
	for i, bar := range c.Bars {
		y := head + row*i
		class := "b"
		if bar.Ours {
			class = "a"
		}
		length := s.length(bar.Value)
		fmt.Fprintf(&out, `<text x="%d" y="%d" text-anchor="end">%s</text>`, labels-8, y+14, html.EscapeString(bar.Label))
		fmt.Fprintf(&out, `<rect class="%s" x="%d" y="%d" width="%s" height="16" rx="2"/>`, class, labels, y+1, short(length))
		fmt.Fprintf(&out, `<text x="%s" y="%d">%s</text>`+"\n", short(labels+length+6), y+14, result.Number(bar.Value))
	}
	if c.Mark > 0 {
		x := short(labels + s.length(c.Mark))
		fmt.Fprintf(&out, `<line class="m" x1="%s" y1="%d" x2="%s" y2="%d"/>`+"\n", x, head-4, x, height-margin)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

func open(out *strings.Builder, title, unit string, height int) {
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n%s\n", width, height,
		html.EscapeString(title), style)
	fmt.Fprintf(out, `<text class="t" x="%d" y="22">%s</text><text x="%d" y="42">%s</text>`+"\n", margin, html.EscapeString(title), margin,
		html.EscapeString(unit))
}

// scale maps values from zero to pixels.
type scale struct {
	most   float64
	pixels float64
}

func (s scale) length(value float64) float64 {
	if s.most <= 0 || value <= 0 || math.IsNaN(value) {
		return 0
	}
	return value / s.most * s.pixels
}

func short(pixels float64) string { return strconv.FormatFloat(math.Round(pixels*10)/10, 'f', -1, 64) }
