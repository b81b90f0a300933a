// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peer measures sa-controller-manager beside kube-controller-manager, in turn and
// on equal control planes. docs/benchmarks.md describes its scenarios.
//
// A repetition whose end state is not the one that it has to be is an error, not a number.
package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// Options say how much is measured.
type Options struct {
	Binary      devcluster.Binary
	Repetitions int

	Namespaces int
	Secrets    int // token Secrets, each of an account of its own
	Accounts   int // that are deleted
	Foreign    int // Secrets of others, for a restart
	PodCount   int // created by one client through each kind of admission
	Settling   time.Duration
	Window     time.Duration

	// Stage bounds one wait.
	Stage time.Duration

	Report *result.Report
	// Out gets a line for each value, Progress one for what is under way.
	Out, Progress io.Writer
}

// Scenarios are the names of all there are.
const Scenarios = "changes,restart,pods,idle,failover"

// Scenario is one that can be measured by itself, and what a report calls its parts.
type Scenario struct {
	Name    string
	Parts   []string
	Measure func(context.Context) error
}

// Scenarios are all there are, in the order in which they are measured. Binary and Report
// may be set until then.
func (o *Options) Scenarios() []Scenario {
	return []Scenario{
		{"changes", []string{"namespaces", "secrets", "deletions"}, o.changes},
		{"restart", []string{"restart"}, o.restart},
		{"pods", []string{"pods"}, o.pods},
		{"idle", []string{"idle"}, o.idle},
		{"failover", []string{"failover"}, o.failover},
	}
}

// Quicken makes the run one of minutes: one repetition, and less of everything.
func (o *Options) Quicken() {
	o.Repetitions, o.Namespaces, o.Secrets, o.Accounts, o.Foreign, o.PodCount = 1, 50, 100, 100, 1000, 100
	o.Settling, o.Window = 10*time.Second, 30*time.Second
}

// Validate returns all that is wrong with the sizes.
func (o *Options) Validate() error {
	var errs []error
	for name, value := range o.sizes() {
		if value < 1 {
			errs = append(errs, fmt.Errorf("%s: want at least 1, got %d", name, value))
		}
	}
	return errors.Join(errs...)
}

func (o *Options) sizes() map[string]int {
	return map[string]int{
		"namespaces": o.Namespaces, "token Secrets": o.Secrets, "deleted accounts": o.Accounts,
		"foreign Secrets": o.Foreign, "Pods": o.PodCount, "repetitions": o.Repetitions,
	}
}

// NewReport is one without results, of this machine and these binaries.
func (o *Options) NewReport(ctx context.Context) (*result.Report, error) {
	var versions []string
	for _, name := range []string{"sa-controller-manager", "kube-controller-manager", "kube-apiserver", "etcd"} {
		path, err := o.Binary.Path, error(nil)
		if len(versions) > 0 {
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
		versions = append(versions, name+" "+line[strings.LastIndexByte(line, ' ')+1:])
	}
	return &result.Report{
		Name: "peer", Machine: result.ThisMachine(time.Now()), Versions: versions, Sizes: o.sizes(), Conditions: []string{
			"etcd, kube-apiserver, the program that is measured and the clients share the machine; etcd keeps its data in the " +
				"temporary directory and does not wait for it (`--unsafe-no-fsync`), which is the same for all",
			"16 clients make the objects, without a limit of their own",
			"Every program is `system:masters` with a client certificate, so that no queue of priority and fairness is in between; " +
				"same key, same root CA, log level 0; leader election is off where one process runs",
		},
	}, nil
}

// statusf says what is under way from now on.
func (o *Options) statusf(format string, args ...any) {
	fmt.Fprintf(o.Progress, time.Now().Format(time.TimeOnly)+"  "+format+"\n", args...)
}

// add keeps a value and prints it.
func (o *Options) add(key result.Key, value float64) {
	o.Report.Add(key, value)
	fmt.Fprintf(o.Out, "%-10s %-22s %-40s %-24s %8.4g %s\n", key.Scenario, key.Variant, key.Metric, key.Program, value, key.Unit)
}

// onFresh calls do with a control plane of its own, which ends with it.
func (o *Options) onFresh(ctx context.Context, options devcluster.Options, do func(context.Context, *world.World) error) (err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w, err := world.New(ctx, options)
	if err != nil {
		return err
	}
	defer func() {
		stop() // the watches, before what they watch
		err = errors.Join(err, w.Stop())
	}()
	return do(ctx, w)
}

// between the measurements a limiter of requests fills up again (KCM's in 1.5 s), and what was begun ends.
const between = 2 * time.Second
