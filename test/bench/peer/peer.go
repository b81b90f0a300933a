// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peer measures sa-controller-manager beside kube-controller-manager, in turn and on equal control planes.
// docs/benchmarks.md describes its scenarios.
//
// A repetition whose end state is not the one that it has to be is an error, not a number.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"sa-controller-manager/test/devcluster"
)

const (
	// waitTimeout bounds each wait.
	waitTimeout = 15 * time.Minute
	// between the measurements a limiter of requests fills up again (KCM's in 1.5 s), and what was begun ends.
	between = 2 * time.Second
)

// Sizes say how much is measured.
type Sizes struct {
	Repetitions int `json:"repetitions"`
	Namespaces  int `json:"namespaces"`
	Secrets     int `json:"secrets"`  // token Secrets, each of an account of its own
	Foreign     int `json:"foreign"`  // Secrets of others
	Pods        int `json:"pods"`     // created by one client, for each kind of admission and repetition
	Accounts    int `json:"accounts"` // in the namespace of the last Pods
}

// String is the line of the page.
func (s Sizes) String() string {
	return fmt.Sprintf("repetitions %d, namespaces %d, token Secrets %d, foreign Secrets %d, Pods %d, accounts beside them %d",
		s.Repetitions, s.Namespaces, s.Secrets, s.Foreign, s.Pods, s.Accounts)
}

// Options of a run.
type Options struct {
	Binary devcluster.Binary
	Sizes  Sizes
	// Settling is how long programs come to rest: the Go runtime collects garbage unasked for after two minutes.
	Settling  time.Duration
	Window    time.Duration // in which nothing happens, or a user's objects change
	Deleted   []int         // how many accounts are deleted at once
	OfAccount int           // token Secrets of one account
	Report    *Report
	// Out gets a line for each value, Progress one for what is under way.
	Out, Progress io.Writer
}

// Full is the run of the page, Quick one of minutes: one repetition, and less of everything.
func Full() *Options {
	return &Options{
		Sizes:    Sizes{Repetitions: 3, Namespaces: 1000, Secrets: 1000, Foreign: 5000, Pods: 500, Accounts: 15000},
		Settling: 130 * time.Second, Window: time.Minute, Deleted: []int{100, 5000}, OfAccount: 5000,
	}
}

// Quick is such a run.
func Quick() *Options {
	return &Options{
		Sizes:    Sizes{Repetitions: 1, Namespaces: 50, Secrets: 100, Foreign: 1000, Pods: 100, Accounts: 1000},
		Settling: 10 * time.Second, Window: 30 * time.Second, Deleted: []int{100, 1000}, OfAccount: 1000,
	}
}

// Scenarios are the names of all there are.
var Scenarios = []string{"changes", "deletions", "users", "rest", "pods", "failover"}

// Measure measures some scenarios and writes the results after each. It goes on after one that cannot be measured, because
// each takes long and none needs another one.
func (o *Options) Measure(ctx context.Context, scenarios []string, out string) error {
	var err error
	if o.Report, err = o.newReport(ctx); err != nil {
		return err
	}
	fmt.Fprintln(o.Out, o.Report.Machine)
	var errs []error
	for i, measure := range []func(context.Context) error{o.changes, o.deletions, o.users, o.rest, o.pods, o.failover} {
		before := slices.Clone(o.Report.Rows)
		if !slices.Contains(scenarios, Scenarios[i]) {
			o.Report.Missing = append(o.Report.Missing, Scenarios[i])
			continue
		}
		if err := measure(ctx); err != nil {
			err = fmt.Errorf("scenario %s: %w", Scenarios[i], err)
			fmt.Fprintln(o.Progress, err)
			errs = append(errs, err)
			// Some repetitions are no result.
			o.Report.Rows, o.Report.Missing = before, append(o.Report.Missing, Scenarios[i])
		}
		errs = append(errs, o.Report.Write(out))
	}
	return errors.Join(errs...)
}

// newReport is one without results, of this machine and these binaries.
func (o *Options) newReport(ctx context.Context) (*Report, error) {
	r := &Report{Machine: machine(), Sizes: o.Sizes}
	for _, name := range []string{ours, kcm, "kube-apiserver", "etcd"} {
		path, err := o.Binary.Path, error(nil)
		if name != ours {
			path, err = devcluster.ControlPlaneBinary(name)
		}
		if err != nil {
			return nil, err
		}
		printed, err := exec.CommandContext(ctx, path, "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("%s --version: %w", path, err)
		}
		// The last word of the first line: "Kubernetes v1.2.3", "etcd Version: 3.4.5".
		line, _, _ := strings.Cut(string(printed), "\n")
		r.Versions = append(r.Versions, name+" "+line[strings.LastIndexByte(line, ' ')+1:])
	}
	return r, nil
}

// statusf says what is under way from now on.
func (o *Options) statusf(format string, args ...any) {
	fmt.Fprintf(o.Progress, time.Now().Format(time.TimeOnly)+"  "+format+"\n", args...)
}

// add keeps a value and prints it.
func (o *Options) add(scenario, metric, program string, value float64) {
	o.Report.add(scenario, metric, program == ours, value)
	fmt.Fprintf(o.Out, "%-36s %-48s %-24s %8.4g\n", scenario, metric, program, value)
}
