// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults tries to break the promises of docs/reliability.md on a real control
// plane, and says whether it could: what needs a real etcd, real connections and processes. The rest
// is test/simulation's, whose judge is the same.
//
// A workload (package workload) churns namespaces, accounts, Secrets and Pods and remembers what must
// exist because of it. Two replicas of the product work on that, each behind a proxy,
// while one fault after the other comes, in an order that a seed says. Then all
// faults end, and the checker (package checker) reads the API until everything is as the promises
// say or a timeout passes. Rotation has an operator rotate keys under faults, in a World of its own.
//
// Lifecycle: Start, Faults, Stop. Rotation has a World of its own.
//
// What must never happen: that the suite blames the product for what a fault excuses. Each excuse is
// an Interval that the fault itself has opened.
package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"text/tabwriter"
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
	if err := w.deploy(ctx, quickPings(binary)); err != nil {
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

// calm returns once a replica leads and watches the registration, and all are ready: one who
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

// Inject begins a fault and returns what ends it. It returns once the fault is there, and
// heal once it is gone, as far as that is the fault's business.
type Inject func(ctx context.Context, w *World) (heal func(context.Context) error, err error)

// Entry is one kind of fault.
type Entry struct {
	Kind string
	// For is how long it lasts, at least.
	For time.Duration
	// Excuse is what it excuses. OnlyAtFirst: it excuses nothing after it has begun, because the other
	// replica does the work.
	Excuse      checker.Excuse
	OnlyAtFirst bool
	// Once: the product takes a second time within ten minutes for intent, and complies.
	Once   bool
	Inject Inject
}

// Processes are faults of our processes, of kube-apiserver and of etcd, and of the connections between them.
func Processes() []Entry {
	const (
		short = 1500 * time.Millisecond
		lapse = leaseDuration + 2*time.Second
	)
	return []Entry{
		{Kind: "leader-killed", For: short, Excuse: checker.Refused, OnlyAtFirst: true, Inject: killLeader},
		{Kind: "leader-paused", For: lapse, Excuse: checker.Refused, OnlyAtFirst: true, Inject: pauseLeader},
		{Kind: "connections-silent", For: lapse, Excuse: checker.FreshRefused, Inject: silenceConnections},
		{Kind: "apiserver-killed", For: short, Excuse: checker.Refused, Inject: killAPIServer},
		{Kind: "etcd-killed", For: short, Excuse: checker.Refused, Inject: killEtcd},
	}
}

// Registration are faults of the webhook's registration.
func Registration() []Entry {
	return []Entry{
		{Kind: "mutating-deleted", Excuse: checker.Bare, Once: true, Inject: tampers(drop(mutating))},
		{Kind: "validating-deleted", Once: true, Inject: tampers(drop(validating))},
		{Kind: "ca-bundle-edited", Excuse: checker.Refused, Inject: tampers(editBundle(mutating))},
		{Kind: "rules-edited", Excuse: checker.Bare, Inject: tampers(edit(mutating, "/webhooks", []any{}))},
		{Kind: "policy-edited", Excuse: checker.Bare, Inject: tampers(edit(mutating, "/webhooks/0/failurePolicy", "Ignore"))},
		{Kind: "validating-bundle-edited", Excuse: checker.Refused, Inject: tampers(editBundle(validating))},
		{Kind: "validating-rules-edited", Inject: tampers(edit(validating, "/webhooks", []any{}))},
	}
}

// WriteTable prints what runs have shown of each promise: how often it was looked at, and how often
// it was broken. That one was not looked at is an error: that nothing was found says nothing about it.
func WriteTable(out io.Writer, outcomes []checker.Outcome) (err error) {
	kinds, faults := map[string]bool{}, 0
	for _, o := range outcomes {
		for kind, n := range o.Injected {
			kinds[kind] = true
			faults += n
		}
	}
	fmt.Fprintf(out, "\n%d faults of %d kinds\n\n", faults, len(kinds))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROMISE\tLOOKED AT\tVIOLATIONS")
	for _, row := range []struct {
		promise int
		text    string
		looked  func(checker.Outcome) int
	}{
		{1, "every account has what it is owed, nothing else is touched", func(o checker.Outcome) int { return o.Operations }},
		{2, "no token for a dead UID", func(o checker.Outcome) int { return o.DeadTokens }},
		{3, "one auto-created Secret each, no dangling reference", func(o checker.Outcome) int { return o.Objects }},
		{4, "every token verifies with a key of the ring", func(o checker.Outcome) int { return o.Tokens }},
		{5, "Pods are admitted, and with all they are owed", func(o checker.Outcome) int { return o.Pods }},
		{6, "no secret byte leaves", func(o checker.Outcome) int { return o.LogBytes }},
		{9, "no write after the renew deadline", func(o checker.Outcome) int { return o.Writes }},
	} {
		looked, found := 0, 0
		for _, o := range outcomes {
			looked += row.looked(o)
			found += len(checker.Of(o.Violations, row.promise))
		}
		fmt.Fprintf(table, "%d. %s\t%d\t%d\n", row.promise, row.text, looked, found)
		if looked == 0 {
			err = errors.New("not everything was tested: see the zeros under LOOKED AT")
		}
	}
	return errors.Join(err, table.Flush())
}
