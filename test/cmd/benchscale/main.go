// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchscale measures sa-controller-manager with up to 100 000 token Secrets: what
// docs/benchmarks.md tells. Results are lines on standard output and, after each size, a
// JSON file; it ends by itself. Nothing else is left behind.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"time"

	"sa-controller-manager/test/bench/scale"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

func main() {
	o := &scale.Options{Progress: world.NewProgress()}
	size := flag.Int("size", 100000, "token Secrets of the largest cluster, with as many accounts and a tenth as many namespaces; "+
		"a tenth and a third of it are measured before")
	flag.IntVar(&o.Reissued, "reissued", 600, "how many tokens of a rotation are awaited; the product re-issues ten a second")
	flag.IntVar(&o.Keys, "keys", 200, "how many Secrets are made one after the other")
	flag.DurationVar(&o.Stage, "stage", time.Hour, "longest time for one step")
	limit := flag.Duration("limit", 3*time.Hour, "when to end at the latest, with the results until then")
	out := flag.String("out", "bin/bench/scale.json", "where the results go")
	flag.Parse()
	o.Sizes = []int{*size / 10, *size / 3, *size}
	os.Exit(world.Main(*limit, func(ctx context.Context) error { return measure(ctx, o, *out) }))
}

func measure(ctx context.Context, o *scale.Options, out string) error {
	if o.Sizes[0] < 1 || o.Reissued < 1 || o.Keys < 1 {
		return errors.New("want --size to be at least 10, and --reissued and --keys at least 1")
	}
	var err error
	if o.Binary, err = devcluster.FindBinary(ctx); err != nil {
		return err
	}
	sizes := map[string]int{"tokens that are re-issued": o.Reissued, "keys one by one": o.Keys}
	if o.Report, err = world.NewReport(ctx, "scale", o.Binary, sizes); err != nil {
		return err
	}
	o.Progress.Linef("%s", o.Report.Machine)
	write := func() error {
		o.Report.Summarize()
		return o.Report.Write(out)
	}
	if err := o.Measure(ctx, write); err != nil {
		return errors.Join(err, write())
	}
	o.Report.Complete = true
	if err := write(); err != nil {
		return err
	}
	o.Progress.Linef("all of it is in %s", out)
	return nil
}
