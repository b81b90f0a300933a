// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchchart brings docs/benchmarks.md up to date with the results beside it: its
// tables and its charts. Given other results, it takes them over first:
//
//	benchchart [-docs DIRECTORY] [RESULTS.json]...
//
// Results that lack what was measured before are not taken over.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sa-controller-manager/test/bench/result"
)

func main() {
	docs := flag.String("docs", "docs", "directory of benchmarks.md")
	flag.Parse()
	if err := run(*docs, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "benchchart:", err)
		os.Exit(1)
	}
}

func run(docs string, newer []string) error {
	for _, path := range newer {
		if err := takeOver(path, filepath.Join(docs, "benchmarks")); err != nil {
			return err
		}
	}
	reports, err := readAll(filepath.Join(docs, "benchmarks"))
	if err != nil {
		return err
	}
	for _, report := range reports[1:] { // what the reports share stands on the page once
		report.Conditions = slices.DeleteFunc(report.Conditions, func(c string) bool { return slices.Contains(reports[0].Conditions, c) })
	}
	drawn := charts(reports)
	sources := []result.Source{drawn.content, against(reports)}
	for _, report := range reports {
		sources = append(sources, report.Content)
	}
	sources = append(sources, unmeasured)
	page := filepath.Join(docs, "benchmarks.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	filled, err := result.Fill(string(text), sources...)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	for name, c := range drawn {
		if err := write(filepath.Join(docs, "benchmarks", name+".svg"), c.svg); err != nil {
			return err
		}
	}
	return write(page, filled)
}

// takeOver keeps results that have all that those before had.
func takeOver(path, dir string) error {
	report, err := result.Read(path)
	if err != nil {
		return err
	}
	kept := filepath.Join(dir, report.Name+".json")
	former, err := result.Read(kept)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if former != nil {
		for _, s := range former.Series {
			if !report.Has(s.Scenario) {
				return fmt.Errorf("%s: scenario %s was not measured, and %s has it; -add measures it into the same file", path, s.Scenario, kept)
			}
		}
	}
	return report.Write(kept)
}

// unmeasured is for a table without results.
func unmeasured(kind, _ string) string {
	if kind == "chart" {
		return ""
	}
	return "Not measured yet.\n"
}

func readAll(dir string) ([]*result.Report, error) {
	var reports []*result.Report
	for _, name := range []string{"peer.json", "scale.json"} {
		report, err := result.Read(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		reports = append(reports, report)
	}
	if len(reports) == 0 {
		return nil, fmt.Errorf("%s holds no results", dir)
	}
	return reports, nil
}

func write(path, content string) error {
	return os.WriteFile(path, []byte(content), 0o644) //nolint:gosec // G306: a file of the repository
}
