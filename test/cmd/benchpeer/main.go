// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchpeer measures sa-controller-manager beside kube-controller-manager, for
// docs/benchmarks.md. Results are lines on standard output and, after each scenario,
// a JSON file; it ends by itself. Nothing else is left behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sa-controller-manager/test/bench/nullwebhook"
	"sa-controller-manager/test/bench/peer"
	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == peer.NullWebhook {
		os.Exit(serveNull(os.Args[2:]))
	}
	o := &peer.Options{Progress: world.NewProgress()}
	flag.IntVar(&o.Repetitions, "repetitions", 3, "how often each program is measured, in turn")
	flag.IntVar(&o.Namespaces, "namespaces", 1000, "namespaces")
	flag.IntVar(&o.Secrets, "secrets", 2000, "token Secrets")
	flag.IntVar(&o.Accounts, "accounts", 500, "accounts that are deleted")
	flag.IntVar(&o.Foreign, "foreign", 5000, "Secrets of 10 KiB that concern nobody")
	flag.IntVar(&o.Large, "large", 10_000, "namespaces that three replicas watch, each with a token Secret")
	flag.IntVar(&o.PodCount, "pods", 500, "Pods that one client creates, for each kind of admission and repetition")
	flag.DurationVar(&o.Settling, "settling", 130*time.Second,
		"how long a program settles before its memory is read; the Go runtime collects garbage unasked for after two minutes")
	flag.DurationVar(&o.Window, "window", time.Minute, "how long to measure what happens while nothing happens")
	flag.DurationVar(&o.Stage, "stage", 15*time.Minute, "longest time for one wait")
	quick := flag.Bool("quick", false, "a run of about 7 minutes: one repetition, fewer objects and shorter waits, "+
		"in place of the flags for these")
	scenarios := flag.String("scenarios", strings.Join(names(o), ","), "which to measure")
	limit := flag.Duration("limit", 90*time.Minute, "when to end at the latest, with the results until then")
	out := flag.String("out", "bin/bench/peer.json", "where the results go")
	add := flag.Bool("add", false, "keep what the file has of other scenarios, if it was measured on the same machine with the same binaries")
	flag.Parse()
	if *quick {
		o.Quicken()
	}
	os.Exit(world.Main(*limit, func(ctx context.Context) error {
		return measure(ctx, o, strings.Split(*scenarios, ","), *out, *add, *quick)
	}))
}

// names are those of all scenarios.
func names(o *peer.Options) []string {
	var all []string
	for _, s := range o.Scenarios() {
		all = append(all, s.Name)
	}
	return all
}

func measure(ctx context.Context, o *peer.Options, scenarios []string, out string, add, quick bool) error {
	if err := o.Validate(); err != nil {
		return err
	}
	for _, name := range scenarios {
		if !slices.Contains(names(o), name) {
			return fmt.Errorf("--scenarios: %q is none of %s", name, strings.Join(names(o), ", "))
		}
	}
	var err error
	if o.Binary, err = devcluster.FindBinary(ctx); err != nil {
		return err
	}
	if o.Report, err = world.NewReport(ctx, "peer", o.Binary, o.Sizes()); err != nil {
		return err
	}
	if quick {
		o.Report.Conditions = append([]string{"**A quick run**, with few objects, short waits and one repetition: " +
			"see `make bench-peer` for one that counts"}, o.Report.Conditions...)
		o.Progress.Linef("%s", o.Report.Conditions[0])
	}
	if add {
		if err := o.Report.Extend(out); err != nil {
			return err
		}
		for _, s := range o.Scenarios() {
			if slices.Contains(scenarios, s.Name) {
				o.Report.Drop(s.Parts...)
			}
		}
	}
	binary, err := os.Stat(o.Binary.Path)
	if err != nil {
		return err
	}
	o.Report.Drop("binary")
	o.Report.Add(result.Key{Scenario: "binary", Metric: "size", Unit: "MB", Program: world.Manual}, float64(binary.Size())/1e6)
	o.Progress.Linef("%s", o.Report.Machine)
	return errors.Join(all(ctx, o, scenarios, out), o.Report.Write(out))
}

// all goes on after a scenario that cannot be measured, because each takes long and none
// needs another one.
func all(ctx context.Context, o *peer.Options, scenarios []string, out string) error {
	var errs []error
	for _, s := range o.Scenarios() {
		if !slices.Contains(scenarios, s.Name) {
			continue
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, fmt.Errorf("scenario %s: %w", s.Name, context.Cause(ctx)))...)
		}
		if err := s.Measure(ctx); err != nil {
			err = fmt.Errorf("scenario %s: %w", s.Name, err)
			o.Progress.Linef("%v", err)
			errs = append(errs, err)
			// Some repetitions are no result.
			o.Report.Drop(s.Parts...)
		}
		o.Report.Summarize(world.KCM, peer.NullPatch, peer.Leading)
		if err := o.Report.Write(out); err != nil {
			return err
		}
	}
	o.Report.Complete = true
	for _, s := range o.Scenarios() {
		for _, part := range s.Parts {
			o.Report.Complete = o.Report.Complete && o.Report.Has(part)
		}
	}
	o.Progress.Linef("the results are in %s", out)
	return errors.Join(errs...)
}

// serveNull is a process that scenario pods starts.
func serveNull(args []string) int {
	var o nullwebhook.Options
	flags := flag.NewFlagSet(peer.NullWebhook, flag.ExitOnError)
	flags.IntVar(&o.Port, "port", 0, "port of 127.0.0.1")
	flags.StringVar(&o.CAFile, "ca-file", "", "where its CA goes")
	flags.StringVar(&o.PatchFile, "patch-file", "", "the patch to answer with")
	flags.StringVar(&o.CaptureFile, "capture-file", "", "where the first review goes")
	_ = flags.Parse(args) // it exits
	if err := nullwebhook.Serve(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "null-webhook:", err)
		return 1
	}
	return 0
}
