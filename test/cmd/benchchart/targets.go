// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/tools/leaderelection"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
)

// product is the program where Pods are created.
const product = "sa-controller-manager"

// target is a number that was aimed at before anything was measured.
type target struct {
	scenario string
	variant  string // its beginning
	metric   string // its beginning
	program  string // "" is any
	most     float64
	// ratio: it is that to the reference program, and not the number itself.
	ratio bool
}

// targets are in the order of the page.
func targets() []target {
	const (
		defaults  = "default flags, RSA"
		unlimited = "unlimited QPS, P-256"
		foreign   = "5000 foreign Secrets"
		perObject = "requests for each object"
		waits     = "a replica that waits"
	)
	return []target{
		{"namespaces", defaults, "time", world.Manual, 0.06, true},
		{"namespaces", unlimited, "time", world.Manual, 0.40, true},
		{"secrets", defaults, "time", world.Manual, 0.05, true},
		{"secrets", unlimited, "time", world.Manual, 0.45, true},
		{"secrets", unlimited, "CPU of the controller", world.Manual, 0.75, true},
		{"secrets", unlimited, perObject, world.Manual, 1, false},
		{"deletions", defaults, "time", world.Manual, 0.08, true},
		{"deletions", unlimited, "time", world.Manual, 1, true},
		{"deletions", unlimited, "CPU of the controller", world.Manual, 1.1, true},
		{"deletions", unlimited, perObject, world.Manual, 2, false},
		{"restart", "no foreign Secrets", "start to ready", world.Manual, 1, true},
		{"restart", foreign, "ready to a new Secret filled", world.Manual, 0.4, true},
		{"restart", foreign, "steady memory, RssAnon", world.Manual, 0.22, true},
		{"pods", "one client", "added p50", product, 1.1, true},
		{"pods", "100 clients", "added p50", product, 1.1, true},
		{"failover", "the leader told to stop", "", world.Manual, 0.5, false},
		// The lease duration and two retry periods with client-go's jitter, of the default flags.
		{"failover", "the leader killed", "", world.Manual, 15 + 2*2*(1+leaderelection.JitterFactor), false},
		{"failover", "two replicas behind a Service, the leader told to stop", "", world.Manual, 0, false},
		{"replicas", "", "requests", waits, 0.5, true},
		{"replicas", "", "CPU", waits, 0.5, true},
		{"replicas", "", "of these", waits, 0, false},
		{"binary", "", "", "", 60, false},
		{"scale", "", "live heap for each token Secret", "", 1.5, false},
		{"scale", "", "a GET of another client, p99, meanwhile to before", "", 2, false},
		{"scale", "", "restart, start to ready", "100000 token Secrets", 8, false},
		{"scale", "", "restart, peak memory, RSS", "100000 token Secrets", 300, false},
		{"scale-slope", "", "time to fill all token Secrets", "", 1.15, false},
	}
}

func (t target) means(s result.Series) bool {
	return s.Scenario == t.scenario && strings.HasPrefix(s.Variant, t.variant) && strings.HasPrefix(s.Metric, t.metric) &&
		(t.program == "" || s.Program == t.program)
}

// against renders a row for each number that was missed, and counts the others.
func against(reports []*result.Report) result.Source {
	var out strings.Builder
	reached := 0
	for _, t := range targets() {
		for _, report := range reports {
			for _, s := range report.Series {
				switch {
				case !t.means(s):
				case t.got(s) > t.most:
					out.WriteString(t.row(report, s))
				default:
					reached++
				}
			}
		}
	}
	return func(kind, name string) string {
		if kind != "results" || name != "targets" || out.Len() == 0 {
			return ""
		}
		return fmt.Sprintf("%d others were reached.\n\n| Missed | At most | Measured |\n|---|---|---|\n%s", reached, &out)
	}
}

func (t target) got(s result.Series) float64 {
	if t.ratio {
		return s.Ratio
	}
	return s.Median
}

func (t target) row(r *result.Report, s result.Series) string {
	unit := s.Unit
	if t.ratio {
		unit = "x"
	}
	words := slices.DeleteFunc([]string{title(r, s.Scenario), s.Metric, s.Variant, strings.TrimPrefix(s.Program, world.Manual)},
		func(word string) bool { return word == "" })
	most := amount(strconv.FormatFloat(t.most, 'f', -1, 64), unit)
	return fmt.Sprintf("| %s | %s | %s |\n", strings.Join(words, ", "), most, amount(result.Number(t.got(s)), unit))
}

// title says what happens in a scenario.
func title(r *result.Report, scenario string) string {
	switch scenario {
	case "namespaces":
		return fmt.Sprintf("%d namespaces", r.Sizes["namespaces"])
	case "secrets":
		return fmt.Sprintf("%d token Secrets", r.Sizes["token Secrets"])
	case "deletions":
		return fmt.Sprintf("%d accounts deleted", r.Sizes["deleted accounts"])
	case "failover":
		return ""
	case "replicas":
		return fmt.Sprintf("three replicas, %d namespaces", r.Sizes["namespaces with three replicas"])
	case "pods":
		return "Pods through the webhook"
	case "scale", "scale-slope":
		return "growing cluster"
	}
	return scenario
}

func amount(number, unit string) string { return strings.TrimSpace(number + " " + unit) }
