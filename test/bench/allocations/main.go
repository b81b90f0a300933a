// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command allocations keeps the allocations of the benchmarks from growing:
//
//	go test -run '^$' -bench . -benchmem ./... | allocations [-update] FILE
//
// FILE has a line for each benchmark: its name, and its allocations per operation. More
// than that is a failure, and so is a benchmark that is missing on either side. Fewer are
// a reason to write FILE again, with -update, so that they stay fewer. One in fifty is
// tolerated: what is kept for the next operation is lost in a garbage collection.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/benchmark/parse"
)

func main() {
	update := flag.Bool("update", false, "write FILE again")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: allocations [-update] FILE <output of go test -bench")
		os.Exit(1)
	}
	if err := run(os.Stdin, flag.Arg(0), *update); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(output io.Reader, path string, update bool) error {
	measured, err := readOutput(output)
	if err != nil {
		return err
	}
	if update {
		return os.WriteFile(path, []byte(format(measured)), 0o644) //nolint:gosec // G306: a file of the repository
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	committed, err := readFile(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return compare(committed, measured)
}

// processors is what go test puts behind the name of a benchmark.
var processors = regexp.MustCompile(`-\d+$`)

// readOutput takes the benchmarks out of what go test prints, and its word that one of
// them has failed.
func readOutput(output io.Reader) (map[string]uint64, error) {
	measured := map[string]uint64{}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "FAIL") || strings.HasPrefix(line, "--- FAIL") {
			return nil, fmt.Errorf("go test: %s", line)
		}
		benchmark, err := parse.ParseLine(line)
		if err != nil || benchmark.Measured&parse.AllocsPerOp == 0 {
			continue
		}
		measured[processors.ReplaceAllString(benchmark.Name, "")] = benchmark.AllocsPerOp
	}
	if len(measured) == 0 && lines.Err() == nil {
		return nil, errors.New("there is no benchmark with -benchmem in the output")
	}
	return measured, lines.Err()
}

func readFile(content string) (map[string]uint64, error) {
	committed := map[string]uint64{}
	for line := range strings.Lines(content) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, number, _ := strings.Cut(line, " ")
		allocations, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: want the name of a benchmark and a number", line)
		}
		committed[name] = allocations
	}
	return committed, nil
}

func format(measured map[string]uint64) string {
	var b strings.Builder
	b.WriteString("# Allocations per operation; make update-allocations writes this file.\n")
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		fmt.Fprintf(&b, "%s %d\n", name, measured[name])
	}
	return b.String()
}

func compare(committed, measured map[string]uint64) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(committed)) {
		got, ok := measured[name]
		switch want := committed[name]; {
		case !ok:
			errs = append(errs, fmt.Errorf("%s has not run", name))
		case got > want+want/50:
			errs = append(errs, fmt.Errorf("%s allocates %d times per operation, want %d at most", name, got, want))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		if _, ok := committed[name]; !ok {
			errs = append(errs, fmt.Errorf("%s has no committed value", name))
		}
	}
	return errors.Join(errs...)
}
