// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchpeer measures sa-controller-manager beside kube-controller-manager, for
// docs/benchmarks.md. Results are lines on standard output and, after each scenario,
// a JSON file; it ends by itself. Nothing else is left behind.
//
//	benchpeer -page=docs/benchmarks.md RESULTS.json...
//
// measures nothing, and fills the tables of the page from results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sa-controller-manager/test/bench/peer"
	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "benchpeer:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 4 && os.Args[1] == peer.NullWebhook {
		return peer.ServeNull(ctx, os.Args[2], os.Args[3])
	}
	o := &peer.Options{Out: os.Stdout, Progress: os.Stderr}
	flags := flag.NewFlagSet("benchpeer", flag.ContinueOnError)
	flags.IntVar(&o.Repetitions, "repetitions", 3, "how often each program is measured, in turn")
	flags.IntVar(&o.Namespaces, "namespaces", 1000, "namespaces")
	flags.IntVar(&o.Secrets, "secrets", 2000, "token Secrets")
	flags.IntVar(&o.Accounts, "accounts", 500, "accounts that are deleted")
	flags.IntVar(&o.Foreign, "foreign", 5000, "Secrets of 10 KiB that concern nobody")
	flags.IntVar(&o.PodCount, "pods", 500, "Pods that one client creates, for each kind of admission and repetition")
	flags.DurationVar(&o.Settling, "settling", 130*time.Second,
		"how long a program settles before its memory is read; the Go runtime collects garbage unasked for after two minutes")
	flags.DurationVar(&o.Window, "window", time.Minute, "how long to measure what happens while nothing happens")
	flags.DurationVar(&o.Stage, "stage", 15*time.Minute, "longest time for one wait")
	quick := flags.Bool("quick", false, "a run of about 7 minutes: one repetition, fewer objects and shorter waits, "+
		"in place of the flags for these")
	scenarios := flags.String("scenarios", peer.Scenarios, "which to measure")
	out := flags.String("out", "bin/bench/peer.json", "where the results go")
	page := flags.String("page", "", "the `file` to fill from the results that are given as arguments")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if *page != "" {
		return fill(*page, flags.Args())
	}
	if *quick {
		o.Quicken()
	}
	return measure(ctx, o, strings.Split(*scenarios, ","), *out, *quick)
}

// measure goes on after a scenario that cannot be measured, because each takes long and none
// needs another one.
func measure(ctx context.Context, o *peer.Options, scenarios []string, out string, quick bool) error {
	errs := []error{o.Validate()}
	for _, name := range scenarios {
		if !slices.Contains(strings.Split(peer.Scenarios, ","), name) {
			errs = append(errs, fmt.Errorf("--scenarios: %q is none of %s", name, peer.Scenarios))
		}
	}
	err := errors.Join(errs...)
	if err != nil {
		return err
	}
	if o.Binary, err = devcluster.FindBinary(ctx); err != nil {
		return err
	}
	if o.Report, err = o.NewReport(ctx); err != nil {
		return err
	}
	if quick {
		o.Report.Conditions = append([]string{"**A quick run**, with few objects, short waits and one repetition: " +
			"see `make bench-peer` for one that counts"}, o.Report.Conditions...)
	}
	binary, err := os.Stat(o.Binary.Path)
	if err != nil {
		return err
	}
	o.Report.Add(result.Key{Scenario: "binary", Metric: "size", Unit: "MB", Program: world.Manual}, float64(binary.Size())/1e6)
	fmt.Fprintln(o.Out, o.Report.Machine)
	o.Report.Complete = len(scenarios) == len(o.Scenarios())
	for _, s := range o.Scenarios() {
		if !slices.Contains(scenarios, s.Name) {
			continue
		}
		if err := s.Measure(ctx); err != nil {
			err = fmt.Errorf("scenario %s: %w", s.Name, err)
			fmt.Fprintln(o.Progress, err)
			errs = append(errs, err)
			// Some repetitions are no result.
			o.Report.Drop(s.Parts...)
			o.Report.Complete = false
		}
		o.Report.Summarize(world.KCM, peer.NullPatch)
		errs = append(errs, o.Report.Write(out))
	}
	fmt.Fprintln(o.Out, "the results are in", out)
	return errors.Join(errs...)
}

// fill brings the tables of a page up to date, and the charts in the folder of its name beside it.
func fill(page string, results []string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	var reports []*result.Report
	for _, path := range results {
		report, err := result.Read(path)
		if err != nil {
			return err
		}
		reports = append(reports, report)
		for name, svg := range report.Charts() {
			chart := filepath.Join(strings.TrimSuffix(page, ".md"), name+".svg")
			if err := os.WriteFile(chart, []byte(svg), 0o644); err != nil { //nolint:gosec // G306: a file of the repository
				return err
			}
		}
	}
	return os.WriteFile(page, []byte(result.Fill(string(text), reports...)), 0o644) //nolint:gosec // G306: a file of the repository
}
