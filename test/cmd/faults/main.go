// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command faults runs the fault suite of package faults and prints a table: how often each promise
// was looked at, and how often it was broken.
//
// It exits with 0 if every promise was kept and every planted bug was found, with 2 if
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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/planted"
	"sa-controller-manager/test/faults/workload"
)

const (
	exitCannot   = 1
	exitViolated = 2
)

// settings are the command line.
type settings struct {
	seed        uint64
	length      time.Duration
	race, plain string
	root        string
	only        string
	logs        string
	busy        bool
	verbose     bool
}

func main() {
	var s settings
	flag.Uint64Var(&s.seed, "seed", 0, "Seed of the workload and of the schedule; 0 draws one.")
	flag.DurationVar(&s.length, "for", 15*time.Second, "How long faults are injected. Every kind comes once at least.")
	flag.StringVar(&s.race, "race-binary", "", "Race-enabled sa-controller-manager, which runs under faults.")
	flag.StringVar(&s.plain, "binary", "", "Ordinary sa-controller-manager, which runs under load.")
	flag.StringVar(&s.root, "root", "", "Directory of the product's source, over which planted bugs are laid.")
	flag.StringVar(&s.only, "only", "", "Run one part only: faults, load, signer or planted.")
	flag.StringVar(&s.logs, "logs", "", "Directory to write the logs of each part's processes to.")
	flag.BoolVar(&s.busy, "busy", false, "Other programs use the machine: a result that is unsure for that reason is no error.")
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
	if err != nil {
		fmt.Fprintf(os.Stderr, "faults: SEED=%d: %v\n", s.seed, err)
		return exitCannot
	}
	if found > 0 {
		fmt.Printf("\n%d violations; SEED=%d runs the same again.\n", found, s.seed)
		return exitViolated
	}
	return 0
}

// complete checks the settings, and makes paths absolute.
func complete(s *settings) error {
	parts := []faults.Part{"", faults.FaultsPart, faults.LoadPart, faults.SignerPart, plantedPart}
	if !slices.Contains(parts, faults.Part(s.only)) {
		return fmt.Errorf("-only=%s: want one of faults, load, signer or planted", s.only)
	}
	for _, path := range []*string{&s.race, &s.plain, &s.root} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
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
	dir, err := os.MkdirTemp("", "sacm-faults-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	plants := startBuild(ctx, s, dir)
	defer plants.build.Wait()
	world, err := faults.Start(ctx, s.log)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, world.Stop()) }()
	world.Busy = s.busy
	fmt.Printf("  control plane: ready in %s\n", since(begun))

	v := &verdict{busy: s.busy}
	plain := devcluster.Binary{Path: s.plain}
	run := faults.Run{Binary: devcluster.Binary{Path: s.race}, Race: true, Seed: s.seed, Length: s.length}
	for _, one := range []struct {
		part faults.Part
		do   func(*faults.World) (checker.Outcome, string, error)
	}{
		{faults.FaultsPart, func(w *faults.World) (checker.Outcome, string, error) { return w.Faults(ctx, run) }},
		{faults.LoadPart, func(w *faults.World) (checker.Outcome, string, error) { return w.Load(ctx, plain) }},
		{faults.SignerPart, func(w *faults.World) (checker.Outcome, string, error) { return w.SignerLoad(ctx, plain) }},
	} {
		if !s.part(one.part) {
			continue
		}
		if one.part == faults.LoadPart || one.part == faults.SignerPart {
			plants.build.Wait() // a compiler beside the load would be taken for the server
		}
		if err := s.perform(world, one.part, one.do, v); err != nil {
			return 0, err
		}
	}
	missed := 0
	if s.part(plantedPart) {
		if missed, err = plants.find(ctx, world, plain); err != nil {
			return 0, err
		}
	}
	found, err = v.print()
	fmt.Printf("\n%s in all, SEED=%d\n", since(begun), s.seed)
	if found += missed; found > 0 {
		return found, nil // what was not done does not matter any more
	}
	return 0, err
}

// perform runs a part.
func (s settings) perform(world *faults.World, part faults.Part,
	do func(*faults.World) (checker.Outcome, string, error), v *verdict) error {
	begun := time.Now()
	outcome, summary, err := do(world)
	if err := errors.Join(err, s.keepLogs(world, part)); err != nil {
		return err
	}
	fmt.Printf("  %s: %s; %s\n", part, since(begun), summary)
	v.take(part, outcome)
	return nil
}

// verdict is what the parts have shown.
type verdict struct {
	busy     bool // the machine may be
	outcomes []checker.Outcome
	blanks   []string // what there was nothing of to check
}

func (v *verdict) take(part faults.Part, outcome checker.Outcome) {
	v.outcomes = append(v.outcomes, outcome)
	for _, blank := range faults.Blanks(outcome, part) {
		v.blanks = append(v.blanks, fmt.Sprintf("%s: %s", part, blank))
	}
}

// print prints the verdict and returns how many violations there were. It is an error if
// something was not done or not looked at.
func (v *verdict) print() (found int, err error) {
	for _, outcome := range v.outcomes {
		found += len(outcome.Violations)
		for _, violation := range outcome.Violations {
			fmt.Printf("  VIOLATED %v\n", violation)
		}
		if outcome.Unsure != nil {
			fmt.Printf("  UNSURE %v\n", outcome.Unsure)
			if !v.busy {
				err = errors.New("other programs used the machine: see the lines UNSURE")
			}
		}
	}
	for _, blank := range v.blanks {
		fmt.Printf("  MISSING %s\n", blank)
		err = errors.New("not everything was tested: see the lines MISSING")
	}
	fmt.Println()
	return found, errors.Join(err, faults.WriteTable(os.Stdout, v.outcomes))
}

// log logs what happens, if that is wanted.
func (s settings) log(format string, args ...any) {
	if s.verbose {
		fmt.Printf("  "+format+"\n", args...)
	}
}

// plantedPart is the part that has no outcome of its own.
const plantedPart faults.Part = "planted"

func (s settings) part(name faults.Part) bool { return s.only == "" || s.only == string(name) }

// keepLogs writes the logs of the part's processes if -logs is given.
func (s settings) keepLogs(world *faults.World, part faults.Part) error {
	if s.logs == "" {
		return nil
	}
	return world.WriteLogs(filepath.Join(s.logs, string(part)))
}

func since(begun time.Time) time.Duration { return time.Since(begun).Round(100 * time.Millisecond) }

// plants is a build with planted bugs that is being made.
type plants struct {
	settings settings
	binary   devcluster.Binary
	err      error
	build    sync.WaitGroup
}

// startBuild builds it beside what else goes on.
func startBuild(ctx context.Context, s settings, dir string) *plants {
	p := &plants{settings: s}
	if s.part(plantedPart) {
		p.build.Go(func() { p.binary, p.err = planted.Build(ctx, s.root, dir) })
	}
	return p
}

// find has the suite look for each plant, and for all of them in an ordinary build, and
// returns how often it was wrong.
func (p *plants) find(ctx context.Context, world *faults.World, ordinary devcluster.Binary) (missed int, err error) {
	p.build.Wait()
	if p.err != nil {
		return 0, p.err
	}
	lap := time.Now()
	shown, err := world.Control(ctx, ordinary)
	if err := errors.Join(err, p.settings.keepLogs(world, plantedPart)); err != nil {
		return 0, fmt.Errorf("an ordinary build under the attacks: %w", err)
	}
	for _, violation := range shown {
		missed++
		fmt.Printf("  VIOLATED an ordinary build shows the violation of a planted bug: %v\n", violation)
	}
	fmt.Printf("  control: %s, an ordinary build shows %d violations of planted bugs\n", since(lap), len(shown))
	for _, plant := range planted.Plants() {
		lap := time.Now()
		found, err := world.Planted(ctx, plant, p.binary)
		if err := errors.Join(err, p.settings.keepLogs(world, plantedPart)); err != nil {
			return 0, fmt.Errorf("plant %q: %w", plant.Name, err)
		}
		if len(found) == 0 {
			missed++
			fmt.Printf("  VIOLATED planted bug %q was not found\n", plant.Name)
			continue
		}
		fmt.Printf("  planted bug found in %s: %s: %.130s\n", since(lap), plant.Name, strings.ReplaceAll(found[0].String(), "\n", " "))
	}
	return missed, nil
}
