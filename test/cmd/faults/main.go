// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command faults runs the fault suite of package faults and prints a table: how often each promise
// was looked at, and how often it was broken.
//
// It exits with 0 if every promise was kept, with 2 if
// not, and with 1 if something was not done or not checked.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

const (
	exitCannot   = 1
	exitViolated = 2
)

// settings are the command line.
type settings struct {
	seed              uint64
	length            time.Duration
	race, plain, logs string
	busy, verbose     bool
}

func main() {
	var s settings
	flag.Uint64Var(&s.seed, "seed", 0, "Seed of the workload and of the schedule; 0 draws one.")
	flag.DurationVar(&s.length, "for", 15*time.Second, "How long faults are injected. Every kind comes once at least.")
	flag.StringVar(&s.race, "race-binary", "", "Race-enabled sa-controller-manager, which runs under faults.")
	flag.StringVar(&s.plain, "binary", "", "Ordinary sa-controller-manager, whose commands rotate keys.")
	flag.StringVar(&s.logs, "logs", "", "Directory to write the logs of all processes to.")
	flag.BoolVar(&s.busy, "busy", false, "Other programs use the machine: times that are too long are no violation.")
	flag.BoolVar(&s.verbose, "v", false, "Log each fault.")
	flag.Parse()
	os.Exit(run(s))
}

func run(s settings) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The suite's own clients would log each connection that is cut on purpose.
	klog.SetLogger(logr.Discard())
	if s.seed == 0 {
		s.seed = rand.Uint64N(1_000_000) + 1
	}
	found, err := suite(ctx, s)
	if found > 0 {
		fmt.Printf("\n%d violations; SEED=%d runs the same again.\n", found, s.seed)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "faults: SEED=%d: %v\n", s.seed, err)
	}
	switch {
	case found > 0:
		return exitViolated
	case err != nil:
		return exitCannot
	}
	return 0
}

// complete makes paths absolute.
func complete(s *settings) error {
	for _, path := range []*string{&s.race, &s.plain, &s.logs} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	if s.logs != "" {
		if err := os.MkdirAll(s.logs, 0o700); err != nil {
			return err
		}
	}
	// A race-enabled binary sleeps a second at its end by default. Its races are read from its log.
	return os.Setenv("GORACE", "atexit_sleep_ms=0 exitcode=0")
}

// suite returns how many violations there were.
func suite(ctx context.Context, s settings) (found int, err error) {
	if err := complete(&s); err != nil {
		return 0, err
	}
	begun := time.Now()
	fmt.Printf("fault suite, SEED=%d, --token-secrets=%s, faults for %s\n", s.seed, workload.ModeOf(s.seed), s.length)
	world, err := faults.Start(ctx, s.log)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, world.Stop()) }()
	world.Busy, world.Logs = s.busy, s.logs
	fmt.Printf("  control plane: ready in %s\n", since(begun))

	lap := time.Now()
	outcome, summary, err := world.Faults(ctx, devcluster.Binary{Path: s.race}, s.seed, s.length)
	if err != nil {
		return 0, fmt.Errorf("faults: %w", err)
	}
	fmt.Printf("  faults: %s; %s\n", since(lap), summary)
	lap = time.Now()
	rotation, summary, err := faults.Rotation(ctx, devcluster.Binary{Path: s.race}, devcluster.Binary{Path: s.plain}, s.seed, s.length,
		s.logs, s.log)
	if err != nil {
		return 0, fmt.Errorf("rotation: %w", err)
	}
	fmt.Printf("  rotation: %s; %s\n", since(lap), summary)
	found, err = write([]checker.Outcome{outcome, rotation})
	fmt.Printf("\n%s in all, SEED=%d\n", since(begun), s.seed)
	return found, err
}

// write prints what was found and the table of promises, and returns how many violations there are.
func write(outcomes []checker.Outcome) (violated int, err error) {
	for _, outcome := range outcomes {
		violated += len(outcome.Violations)
		for _, violation := range outcome.Violations {
			fmt.Printf("  VIOLATED %v\n", violation)
		}
		for _, violation := range outcome.Unsure {
			fmt.Printf("  UNSURE, other programs use the machine: %v\n", violation)
		}
	}
	return violated, faults.WriteTable(os.Stdout, outcomes)
}

// log logs what happens, if that is wanted.
func (s settings) log(format string, args ...any) {
	if s.verbose {
		fmt.Printf("  "+format+"\n", args...)
	}
}

func since(begun time.Time) time.Duration { return time.Since(begun).Round(100 * time.Millisecond) }
