// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command idle measures what sa-controller-manager costs while nothing happens, beside
// kube-controller-manager. It prints a table and ends by itself. Nothing is left behind.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"sa-controller-manager/test/bench/idle"
	"sa-controller-manager/test/devcluster"
)

func main() {
	options := idle.Options{Settling: 150 * time.Second, Windows: 1, Tell: func(text string) { fmt.Println(text) }}
	flag.IntVar(&options.Objects, "objects", 500, "namespaces, each with an account and a filled token Secret")
	flag.DurationVar(&options.Window, "for", 5*time.Minute, "how long to measure")
	flag.Parse()
	os.Exit(run(options))
}

// run is a function of its own so that what it defers happens before the exit.
func run(options idle.Options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, options); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		return 1
	}
	return 0
}

func measure(ctx context.Context, options idle.Options) (err error) {
	if options.Binary, err = devcluster.FindBinary(ctx); err != nil {
		return err
	}
	costs, err := idle.Measure(ctx, options)
	if err != nil {
		return err
	}
	return printTable(os.Stdout, costs)
}

func printTable(out io.Writer, costs []idle.Cost) error {
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "\nPROCESS\tCPU PER MINUTE\tRSSANON\tREQUESTS PER MINUTE")
	for _, cost := range costs {
		fmt.Fprintf(table, "%s\t%.2f s\t%.1f MiB\t%.1f\n", cost.Program, cost.CPU, cost.RSSAnon, cost.Requests)
	}
	return table.Flush()
}
