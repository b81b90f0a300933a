// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

// stayWell is how long all has to stay well once it is. What tries again after a second or two
// has shown itself by then.
const stayWell = 3 * time.Second

// Faults has two replicas of a race-enabled binary work while a workload churns and faults come and go, and then
// judges. The seed also says in which mode: workload.ModeOf.
func (w *World) Faults(ctx context.Context, binary devcluster.Binary, seed uint64, length time.Duration) (checker.Outcome, string, error) {
	w.mode = workload.ModeOf(seed)
	defer func() { w.mode = workload.Auto }()
	if err := w.deploy(ctx, quickPings(binary), 2); err != nil {
		return checker.Outcome{}, "", err
	}
	workload := workload.StartWorkload(w.client, seed, "faults")
	err := w.execute(ctx, seed, length)
	model, calls, endErr := workload.End()
	if err := errors.Join(err, endErr); err != nil {
		return checker.Outcome{}, "", err
	}
	outcome, err := w.check(ctx, scope{model: model, calls: calls, lasts: stayWell, timeout: settleTimeout})
	outcome.Operations = workload.Operations()
	outcome.Injected, w.injected = w.injected, map[string]int{}
	return outcome, fmt.Sprintf("settled in %s", outcome.Settled.Round(100*time.Millisecond)), errors.Join(err, w.retire())
}

// breather is what is waited between two faults, at least. Twice that at most.
const breather = 500 * time.Millisecond

// execute has faults come one after the other, and those of the registration last, because how fast it is repaired
// is promised for healthy watches.
func (w *World) execute(ctx context.Context, seed uint64, length time.Duration) error {
	random := rand.New(rand.NewPCG(seed, 0))
	if err := w.strike(ctx, random, Processes(), length); err != nil {
		return err
	}
	if err := w.strike(ctx, random, Files(), 0); err != nil {
		return err
	}
	if err := w.calm(ctx); err != nil {
		return err
	}
	return w.strike(ctx, random, Registration(), length/4)
}

// strike has each kind come once, in an order that random chooses, and again until the time is over.
func (w *World) strike(ctx context.Context, random *rand.Rand, kinds []Entry, length time.Duration) error {
	begun := time.Now()
	for first := true; first || time.Since(begun) < length; first = false {
		for _, i := range random.Perm(len(kinds)) {
			entry, breath := kinds[i], breather+time.Duration(random.Int64N(int64(breather)))
			entry.For += time.Duration(random.Int64N(int64(entry.For/4 + 1)))
			if !first && (entry.Once || time.Since(begun) > length) {
				continue
			}
			if !await.Sleep(ctx, breath) {
				return context.Cause(ctx)
			}
			if err := w.perform(ctx, entry); err != nil {
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
	if err := w.awaitReady(ctx); err != nil {
		return err
	}
	for _, which := range []configuration{mutating, validating} {
		err := leader.now().awaitRequest(ctx, func(r faultproxy.Request) bool {
			return r.Verb == "watch" && r.Resource == string(which) && r.Open
		})
		if err != nil {
			return fmt.Errorf("await the watch of %s: %w", which, err)
		}
	}
	return nil
}

// perform has one fault come and go.
func (w *World) perform(ctx context.Context, fault Entry) error {
	w.log("%s %s for %v", time.Now().Format("15:04:05"), fault.Kind, fault.For)
	excuse := &checker.Interval{From: time.Now(), Excuse: fault.Excuse}
	w.excuses = append(w.excuses, excuse)
	heal, err := fault.Inject(ctx, w)
	if errors.Is(err, errSkipped) {
		w.log("%s is left out: %v", fault.Kind, err)
		return nil
	}
	if err != nil {
		return err
	}
	w.injected[fault.Kind]++
	excuse.To = time.Now()
	await.Sleep(ctx, fault.For)
	// A fault ends also when the run does.
	err = heal(context.WithoutCancel(ctx))
	if !fault.OnlyAtFirst {
		excuse.To = time.Now()
	}
	return err
}
