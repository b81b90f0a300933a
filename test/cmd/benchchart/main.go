// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchchart brings docs/benchmarks.md up to date with the results beside it: its
// tables and its charts. Given other results, it takes them over first:
//
//	benchchart [-docs DIRECTORY] [RESULTS.json]...
//
// Results that are not complete are not taken over.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

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
		report, err := result.Read(path)
		if err != nil {
			return err
		}
		if !report.Complete {
			return fmt.Errorf("%s is not complete: scenarios are missing or the run was cut short", path)
		}
		if err := report.Write(filepath.Join(docs, "benchmarks", report.Name+".json")); err != nil {
			return err
		}
	}
	reports, err := readAll(filepath.Join(docs, "benchmarks"))
	if err != nil {
		return err
	}
	drawn := charts(reports)
	sources := []result.Source{drawn.content}
	for _, report := range reports {
		sources = append(sources, report.Content)
	}
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
