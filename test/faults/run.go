// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

// Run is one run of faults.
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
	if err := w.deploy(ctx, quickPings(run.Binary), 2); err != nil {
		return checker.Outcome{}, "", err
	}
	workload := workload.StartWorkload(w.client, run.Seed, "faults")
	err := w.execute(ctx, run)
	model, calls, endErr := workload.End()
	if err := errors.Join(err, endErr); err != nil {
		return checker.Outcome{}, "", err
	}
	outcome, err := w.check(ctx, scope{model: model, lasts: stayWell}, calls, settleTimeout)
	outcome.Operations = workload.Operations()
	summary := fmt.Sprintf("settled in %s; at most %d goroutines", outcome.Settled.Round(100*time.Millisecond), outcome.Most.Goroutines)
	return outcome, summary, errors.Join(err, w.retire())
}

// breather is what is waited between two faults, at least. Twice that at most.
const breather = 500 * time.Millisecond

// execute has faults come one after the other, and those of the registration last, because how fast it is repaired
// is promised for healthy watches.
func (w *World) execute(ctx context.Context, run Run) error {
	random := rand.New(rand.NewPCG(run.Seed, 0))
	if err := w.strike(ctx, random, Processes(), run.Length); err != nil {
		return err
	}
	if err := w.strike(ctx, random, Files(), 0); err != nil {
		return err
	}
	if err := w.calm(ctx); err != nil {
		return err
	}
	return w.strike(ctx, random, Registration(), run.Length/4)
}

// strike has each kind come once, in an order that random chooses, and again until the time is over.
func (w *World) strike(ctx context.Context, random *rand.Rand, kinds []Entry, length time.Duration) error {
	begun := time.Now()
	for first := true; first || time.Since(begun) < length; first = false {
		for _, i := range random.Perm(len(kinds)) {
			entry, breath := kinds[i], breather+time.Duration(random.Int64N(int64(breather)))
			planned := Planned{entry.Kind, entry.For + time.Duration(random.Int64N(int64(entry.For/4+1))), random.IntN(1000)}
			if !first && (entry.Once || time.Since(begun) > length) {
				continue
			}
			if !await.Sleep(ctx, breath) {
				return context.Cause(ctx)
			}
			if err := w.perform(ctx, entry, planned); err != nil {
				return fmt.Errorf("%s: %w", entry.Kind, err)
			}
		}
	}
	return nil
}

// calm returns once somebody leads and watches the registration, and all are ready: one who
// begins to lead first proves that kube-apiserver reaches it, and one whose watches were cut
// waits up to half a minute before it tries again.
func (w *World) calm(ctx context.Context) error {
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
	end := sync.OnceFunc(w.excuses.Open(entry.Excuse))
	defer end()
	heal, err := entry.Inject(ctx, w, fault)
	if errors.Is(err, errSkipped) {
		w.log("%s is left out: %v", entry.Kind, err)
		return nil
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.injected[entry.Kind]++
	w.mu.Unlock()
	if entry.OnlyAtFirst {
		end()
	}
	await.Sleep(ctx, fault.For)
	// A fault ends also when the run does.
	return heal(context.WithoutCancel(ctx))
}
