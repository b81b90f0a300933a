// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package alerts tests the alert rules below manifests/monitoring with Prometheus' own
// engine: its test gives each alert series for which it fires and series for which it does
// not, and has every expression of the rules and of the dashboard parsed.
//
// It is a module of its own, because the engine is made of some 190 packages that nothing
// else here needs. "make test-alerts" runs it.
//
// A counter that is born at 1 has no increase. Where one such event matters, as with a refused
// file, the rule asks for a gauge.
package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"sigs.k8s.io/yaml"
)

const (
	rulesFile     = "../../manifests/monitoring/prometheusrule.yaml"
	dashboardFile = "../../manifests/monitoring/grafana/sa-controller-manager.json"
	casesFile     = "testdata/cases.yaml"
	exposedFile   = "testdata/exposed.yaml"

	// every is how often rules are evaluated, and samples are taken.
	every = time.Minute
	// start is later than the longest duration in a rule, so that a time counted from 0 is long ago.
	start = 10 * 24 * time.Hour
)

type rule struct {
	Alert string `json:"alert"`
	Expr  string `json:"expr"`
	For   string `json:"for"`
}

// alertCase is what promtool calls a test: series, and what they are to lead to.
type alertCase struct {
	// Name says what the series mean.
	Name string `json:"name"`
	// Alert is the one that is asked about.
	Alert string `json:"alert"`
	// After is the time of the question, counted from the second sample: the first one is of the minute before, so that
	// what has changed since can be seen.
	After string `json:"after"`
	// Fires is how many alerts of that name there are to be then. If none, there has been
	// none all the time, unless one has Ended.
	Fires  int               `json:"fires"`
	Ended  bool              `json:"ended"`
	Series map[string]string `json:"series"`
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	rules := rules(t)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, c := range cases(t) {
		fires[c.Alert] = fires[c.Alert] || c.Fires > 0
		silent[c.Alert] = silent[c.Alert] || c.Fires == 0
		t.Run(c.Alert+"/"+c.Name, func(t *testing.T) {
			t.Parallel()
			rule, ok := rules[c.Alert]
			if !ok {
				t.Fatalf("there is no alert %s", c.Alert)
			}
			after := duration(t, c.After)
			got, ever := firing(t, rule, c.Series, after)
			if got != c.Fires {
				t.Errorf("%d alerts fire after %v, want %d", got, after, c.Fires)
			}
			if want := c.Fires > 0 || c.Ended; ever != want {
				t.Errorf("one has fired within %v: %t, want %t", after, ever, want)
			}
		})
	}
	for name := range rules {
		if !fires[name] || !silent[name] {
			t.Errorf("%s: a case in which it fires: %t, one in which it does not: %t; want both", name, fires[name], silent[name])
		}
	}
}

// TestExposed evaluates the alerts of the registration by what a real process exposes.
func TestExposed(t *testing.T) {
	t.Parallel()
	var states []struct {
		State       string
		Series, Due []string
	}
	read(t, exposedFile, &states)
	for _, one := range states {
		series := map[string]string{}
		for _, line := range one.Series {
			name, value, _ := strings.Cut(line, " ")
			series[name] = value + "x60"
		}
		var due []string
		for name, rule := range rules(t) {
			if strings.Contains(rule.Expr, "sacm_webhook_registration") {
				if count, _ := firing(t, rule, series, time.Hour); count > 0 {
					due = append(due, name)
				}
			}
		}
		slices.Sort(due)
		if strings.Join(due, " ") != strings.Join(one.Due, " ") {
			t.Errorf("%s: the alerts %v fire, want %v", one.State, due, one.Due)
		}
	}
}

// firing counts the alerts that fire at the end, and reports whether one ever did. An alert
// fires once it has been due for as long as the rule wants.
func firing(t *testing.T, rule rule, series map[string]string, after time.Duration) (count int, ever bool) {
	t.Helper()
	load := "load 1m\n"
	for name, values := range series {
		load += fmt.Sprintf("  %s _x%d %s\n", name, start/every-1, values)
	}
	data := promqltest.LoadedStorage(t, load)
	defer data.Close()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	wait, begin := duration(t, rule.For), time.Unix(0, 0).Add(start)
	since := map[string]time.Time{}
	for now := begin; !now.After(begin.Add(after)); now = now.Add(every) {
		due := map[string]time.Time{}
		count = 0
		for _, labels := range evaluate(t, engine, data, rule.Expr, now) {
			due[labels] = now
			if before, ok := since[labels]; ok {
				due[labels] = before
			}
			if now.Sub(due[labels]) >= wait {
				count++
			}
		}
		since, ever = due, ever || count > 0
	}
	return count, ever
}

func evaluate(t *testing.T, engine *promql.Engine, data storage.Queryable, expr string, now time.Time) []string {
	t.Helper()
	query, err := engine.NewInstantQuery(context.Background(), data, nil, expr, now)
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	vector, err := query.Exec(context.Background()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	var found []string
	for _, one := range vector {
		found = append(found, one.Metric.String())
	}
	return found
}

func TestExpressionsParse(t *testing.T) {
	t.Parallel()
	expressions := dashboard(t)
	if len(expressions) == 0 {
		t.Fatal("the dashboard asks for nothing")
	}
	for _, rule := range rules(t) {
		expressions = append(expressions, rule.Expr)
	}
	for _, expr := range expressions {
		// Grafana puts its own interval in.
		if _, err := parser.NewParser(parser.Options{}).ParseExpr(strings.ReplaceAll(expr, "$__rate_interval", "5m")); err != nil {
			t.Errorf("%s: %v", expr, err)
		}
	}
}

func rules(t *testing.T) map[string]rule {
	t.Helper()
	var file struct {
		Spec struct {
			Groups []struct {
				Rules []rule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	read(t, rulesFile, &file)
	found := map[string]rule{}
	for _, group := range file.Spec.Groups {
		for _, rule := range group.Rules {
			found[rule.Alert] = rule
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s has no rules", rulesFile)
	}
	return found
}

func cases(t *testing.T) []alertCase {
	t.Helper()
	var found []alertCase
	read(t, casesFile, &found)
	return found
}

func dashboard(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatalf("%s: %v", dashboardFile, err)
	}
	var found []string
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			found = append(found, target.Expr)
		}
	}
	return found
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// duration reads one; none is 0.
func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	if text == "" {
		return 0
	}
	d, err := model.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(d)
}

// TestClusterIsKept: one Prometheus may watch several clusters. Each aggregation and each matching keeps the label that
// tells them apart, or one cluster in order would hide another one that is not.
func TestClusterIsKept(t *testing.T) {
	t.Parallel()
	for name, rule := range rules(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			switch node := node.(type) {
			case *parser.AggregateExpr:
				if node.Without == slices.Contains(node.Grouping, "cluster") {
					t.Errorf("%s: %s drops the label cluster", name, node)
				}
			case *parser.BinaryExpr:
				if m := node.VectorMatching; m != nil && m.On != slices.Contains(m.MatchingLabels, "cluster") {
					t.Errorf("%s: %s does not match by the label cluster", name, node)
				}
			}
			return nil
		})
	}
}
