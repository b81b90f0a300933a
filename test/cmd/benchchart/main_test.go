// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
)

func report(complete bool) *result.Report {
	r := &result.Report{Name: "peer", Complete: complete}
	for _, key := range []result.Key{
		{Scenario: "a", Variant: "default flags", Metric: "time", Unit: "s", Program: world.KCM},
		{Scenario: "a", Variant: "default flags", Metric: "time", Unit: "s", Program: world.Manual},
		{Scenario: "e", Variant: "no foreign Secrets", Metric: "steady memory, RssAnon", Unit: "MiB", Program: world.Manual},
		{Scenario: "g", Variant: "one client", Metric: "added p50", Unit: "ms", Program: "ours"},
		{Scenario: "scale", Metric: "time to fill all token Secrets", Unit: "s", Program: "10000 token Secrets"},
	} {
		r.Add(key, 2)
	}
	r.Summarize(world.KCM)
	return r
}

func TestRun(t *testing.T) {
	t.Parallel()
	docs := t.TempDir()
	page, fresh := filepath.Join(docs, "benchmarks.md"), filepath.Join(docs, "fresh.json")
	if err := os.WriteFile(page, []byte("<!-- results: a -->\n<!-- end -->\n<!-- chart: speed -->\n<!-- end -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(docs, nil); err == nil {
		t.Error("a page was filled from no results")
	}
	if err := report(false).Write(fresh); err != nil {
		t.Fatal(err)
	}
	if err := run(docs, []string{fresh}); err == nil {
		t.Error("results of a run that was cut short were taken over")
	}
	if err := report(true).Write(fresh); err != nil {
		t.Fatal(err)
	}
	if err := run(docs, []string{fresh}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "2; **1 x**") || !strings.Contains(string(text), "](benchmarks/speed.svg)\n<!-- end -->") {
		t.Errorf("the page is %q: %v", text, err)
	}
	for _, name := range []string{"speed", "memory", "webhook", "scale"} {
		if svg, err := os.ReadFile(filepath.Join(docs, "benchmarks", name+".svg")); err != nil || !strings.Contains(string(svg), ">2.00<") && name != "speed" {
			t.Errorf("chart %s: %v\n%s", name, err, svg)
		}
	}
}
