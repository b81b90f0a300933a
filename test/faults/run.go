// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

// Run is one run of a schedule.
type Run struct {
	Binary devcluster.Binary
	Race   bool   // the binary is race-enabled
	Seed   uint64 // also says in which mode: ModeOf
	Length time.Duration
}

// stayWell is how long all has to stay well once it is. What tries again after a second or two
// has shown itself by then.
const stayWell = 3 * time.Second

// Faults has two replicas work while a workload churns and faults come and go, and then
// judges.
func (w *World) Faults(ctx context.Context, run Run) (checker.Outcome, string, error) {
	w.monitor.setRace(run.Race)
	w.mode = workload.ModeOf(run.Seed)
	defer func() { w.mode = workload.Auto }()
	binary, err := w.ordinaryRights(quickPings(run.Binary))
	if err == nil {
		err = w.deploy(ctx, binary, 2)
	}
	if err != nil {
		return checker.Outcome{}, "", err
	}
	workload := workload.StartWorkload(w.client, run.Seed, "faults")
	attacked, attackErr := w.attack(ctx, "attack", w.races())
	plan := Plan(run.Seed, run.Length, 2, Catalogue())
	err = errors.Join(attackErr, w.execute(ctx, plan))
	model, calls, endErr := workload.End()
	if err := errors.Join(err, endErr); err != nil {
		return checker.Outcome{}, "", err
	}
	maps.Copy(model, attacked)
	outcome, err := w.check(ctx, scope{model: model, lasts: stayWell}, calls, settleTimeout)
	outcome.Operations = workload.Operations()
	summary := fmt.Sprintf("settled in %s; at most %d goroutines", outcome.Settled.Round(100*time.Millisecond), outcome.Most.Goroutines)
	return outcome, summary, errors.Join(err, w.retire())
}

// execute does what the plan says. A lane that is late goes on with the next fault at
// once, and after its time leaves out what would only come again.
func (w *World) execute(ctx context.Context, plan []Planned) error {
	entries := map[checker.Kind]Entry{}
	for _, entry := range Catalogue() {
		entries[entry.Kind] = entry
	}
	byLane := map[Lane][]Planned{}
	for _, fault := range plan {
		byLane[fault.Lane] = append(byLane[fault.Lane], fault)
	}
	var lanes sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	perform := func(lane Lane) {
		faults := byLane[lane]
		begun, came := time.Now(), map[checker.Kind]bool{}
		at := func(fault Planned) time.Time { return begun.Add(fault.At - faults[0].At) }
		for _, fault := range faults {
			if came[fault.Kind] && time.Now().After(at(faults[len(faults)-1])) {
				continue
			}
			came[fault.Kind] = true
			if !await.Sleep(ctx, time.Until(at(fault))) {
				return
			}
			if err := w.perform(ctx, entries[fault.Kind], fault); err != nil {
				mu.Lock()
				errs = append(errs, fmt.Errorf("%s: %w", fault.Kind, err))
				mu.Unlock()
				stop()
				return
			}
		}
	}
	for _, lane := range []Lane{Processes, Requests, Files} {
		lanes.Go(func() { perform(lane) })
	}
	lanes.Wait()
	if err := w.calm(ctx); err != nil {
		errs = append(errs, err)
	}
	perform(Registration)
	return errors.Join(errs...)
}

// calm returns once somebody leads and watches the registration, and all are ready: one who
// begins to lead first proves that kube-apiserver reaches it, and one whose watches were cut
// waits up to half a minute before it tries again.
func (w *World) calm(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil // another error is the reason
	}
	ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
	defer cancel()
	leader, err := w.leader(ctx)
	if err != nil {
		return err
	}
	for _, r := range w.all() {
		if err := r.now().manager.Ready(ctx); err != nil {
			return fmt.Errorf("await %s: %w", r.name, err)
		}
	}
	if _, err := w.awaitRegistered(ctx); err != nil {
		return err
	}
	return leader.awaitWatches(ctx, "mutatingwebhookconfigurations", "validatingwebhookconfigurations")
}

// perform has one fault come and go.
func (w *World) perform(ctx context.Context, entry Entry, fault Planned) error {
	w.log("%s %v", time.Now().Format("15:04:05"), fault)
	end := w.excuses.Open(entry.Excuse)
	heal, err := entry.Inject(ctx, w, fault)
	if err != nil {
		end()
		if skipped := (skippedError{}); errors.As(err, &skipped) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.record.skipped[entry.Kind] = skipped.why
			return nil
		}
		if errors.Is(err, errSkipped) {
			return nil
		}
		return err
	}
	w.mu.Lock()
	w.record.injected[entry.Kind]++
	w.mu.Unlock()
	if entry.OnlyAtFirst {
		end()
	}
	await.Sleep(ctx, fault.For)
	// A fault ends also when the run does.
	err = heal(context.WithoutCancel(ctx))
	end()
	return err
}
