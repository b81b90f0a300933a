// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchpeer measures sa-controller-manager beside kube-controller-manager, for
// docs/benchmarks.md. Results are lines on standard output and, after each scenario,
// a JSON file; it ends by itself. Nothing else is left behind.
//
//	benchpeer -page=docs/benchmarks.md RESULTS.json
//
// measures nothing, and fills the page from results.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"sa-controller-manager/test/bench/peer"
	"sa-controller-manager/test/devcluster"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "benchpeer:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	flags := flag.NewFlagSet("benchpeer", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "a run of about 6 minutes: one repetition, fewer objects and shorter waits")
	list := flags.String("scenarios", strings.Join(peer.Scenarios, ","), "which to measure")
	out := flags.String("out", "bin/bench/peer.json", "where the results go")
	page := flags.String("page", "", "the `file` to fill from the results that are given as argument")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	if *page != "" {
		return peer.Fill(*page, flags.Arg(0))
	}
	scenarios := strings.Split(*list, ",")
	for _, name := range scenarios {
		if !slices.Contains(peer.Scenarios, name) {
			err = errors.Join(err, fmt.Errorf("--scenarios: %q is none of %s", name, strings.Join(peer.Scenarios, ",")))
		}
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := peer.Full()
	if *quick {
		o = peer.Quick()
	}
	o.Out, o.Progress = os.Stdout, os.Stderr
	if o.Binary, err = devcluster.FindBinary(ctx); err != nil {
		return err
	}
	err = o.Measure(ctx, scenarios, *out)
	fmt.Println("the results are in", *out)
	return err
}
