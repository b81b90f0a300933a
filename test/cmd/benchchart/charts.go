// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"sa-controller-manager/test/bench/chart"
	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
)

// drawing is one chart.
type drawing struct{ title, svg string }

// drawings are those for which there are numbers, by the names of their files.
type drawings map[string]drawing

func charts(reports []*result.Report) drawings {
	drawn := drawings{}
	for _, r := range reports {
		for name, c := range map[string]chart.Bars{"speed": speed(r), "memory": memory(r), "webhook": webhook(r)} {
			if len(c.Bars) > 0 {
				drawn[name] = drawing{c.Title, c.SVG()}
			}
		}
	}
	return drawn
}

// content is the link to a chart.
func (d drawings) content(kind, name string) string {
	if c, ok := d[name]; ok && kind == "chart" {
		return fmt.Sprintf("![%s](benchmarks/%s.svg)\n", c.title, name)
	}
	return ""
}

// speed shows changes as parts of the time of kube-controller-manager.
func speed(r *result.Report) chart.Bars {
	c := chart.Bars{
		Title: "Time of sa-controller-manager; kube-controller-manager is 1 (dashed)",
		Unit:  "Shorter is faster. Default flags: the gap is kube-controller-manager's own limit, 20 requests a second", Mark: 1,
	}
	for _, s := range r.Series {
		if s.Program == world.Manual && s.Metric == "time" && s.Ratio > 0 {
			c.Bars = append(c.Bars, chart.Bar{Label: title(r, s.Scenario) + ", " + s.Variant, Value: s.Ratio, Ours: true})
		}
	}
	return c
}

func memory(r *result.Report) chart.Bars {
	c := chart.Bars{Title: "Steady memory after a restart", Unit: "MiB of RssAnon"}
	for _, s := range r.Series {
		if s.Scenario == "restart" && strings.Contains(s.Metric, "RssAnon") {
			c.Bars = append(c.Bars, chart.Bar{Label: plain(s.Program) + ", " + s.Variant, Value: s.Median, Ours: s.Program == world.Manual})
		}
	}
	return c
}

func webhook(r *result.Report) chart.Bars {
	c := chart.Bars{Title: "What admission adds to the creation of a Pod", Unit: "ms at p50, one client"}
	for _, s := range r.Series {
		if s.Scenario == "pods" && s.Variant == "one client" && s.Metric == "added p50" {
			c.Bars = append(c.Bars, chart.Bar{Label: s.Program, Value: s.Median, Ours: s.Program == product})
		}
	}
	return c
}

// plain is short enough for a label: only speed has another mode, and says so.
func plain(program string) string {
	return strings.NewReplacer(", `manual`", "", world.KCM, "KCM").Replace(program)
}
