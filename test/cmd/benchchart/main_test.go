// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
)

func report() *result.Report {
	r := &result.Report{Name: "peer", Complete: true}
	for _, key := range []result.Key{
		{Scenario: "namespaces", Variant: "default flags", Metric: "time", Unit: "s", Program: world.KCM},
		{Scenario: "namespaces", Variant: "default flags", Metric: "time", Unit: "s", Program: world.Manual},
		{Scenario: "restart", Variant: "no foreign Secrets", Metric: "steady memory, RssAnon", Unit: "MiB", Program: world.Manual},
		{Scenario: "pods", Variant: "one client", Metric: "added p50", Unit: "ms", Program: product},
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
	testutil.Must(t, os.WriteFile(page,
		[]byte("<!-- results: namespaces -->\n<!-- end -->\n<!-- results: idle -->\n<!-- end -->\n<!-- chart: speed -->\n<!-- end -->\n"), 0o600))
	if err := run(docs, nil); err == nil {
		t.Error("a page was filled from no results")
	}
	testutil.Must(t, report().Write(fresh))
	testutil.Must(t, run(docs, []string{fresh}))
	lesser := report()
	lesser.Drop("restart")
	testutil.Must(t, lesser.Write(fresh))
	if err := run(docs, []string{fresh}); err == nil || !strings.Contains(err.Error(), "scenario restart was not measured") {
		t.Errorf("results that lack a scenario of those before: got %v", err)
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(text), "2 **1x**") || !strings.Contains(string(text), "](benchmarks/speed.svg)\n<!-- end -->") {
		t.Errorf("the page is %q: %v", text, err)
	}
	if !strings.Contains(string(text), "<!-- results: idle -->\nNot measured yet.\n<!-- end -->") {
		t.Errorf("the page does not say what is not measured: %s", text)
	}
	for _, name := range []string{"speed", "memory", "webhook"} {
		if svg, err := os.ReadFile(filepath.Join(docs, "benchmarks", name+".svg")); err != nil || !strings.Contains(string(svg), ">2<") &&
			name != "speed" {
			t.Errorf("chart %s: %v\n%s", name, err, svg)
		}
	}
}
