// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults tries to break the promises of docs/reliability.md on a real control
// plane, and says whether it could: what needs a real etcd, real connections and processes, or load. The rest
// is test/simulation's.
//
// A workload (package workload) churns namespaces, accounts, Secrets and Pods and remembers what must
// exist because of it. Two replicas of the product work on that, each behind a proxy,
// while one fault after the other comes, in an order that a seed says. Then all
// faults end, and the checker (package checker) reads the API until everything is as the promises
// say or a timeout passes. Load has slow and broken clients attack the webhook.
// Rotation has an operator rotate keys under faults, in a World of its own.
//
// The suite proves itself: bugs in the product's source (package planted) must be
// found.
//
// Lifecycle: Start, then Faults, Load, Control and Planted in any order, then Stop. One
// goroutine calls them. Rotation needs none of it.
//
// What must never happen: that the suite blames the product for what a fault excuses. Each excuse is
// an Interval that the fault itself has opened.
package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/planted"
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

// Files are faults of the file system that a key ring is on. They hit commands, and no replica.
func Files() []Entry {
	return []Entry{
		{Kind: "disk-full", Inject: disk("no space left on device", fullDisk)},
		{Kind: "disk-read-only", Inject: disk("is read-only here (its file system is)", readOnlyDisk)},
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
	kinds, faults, calls := map[string]bool{}, 0, 0
	for _, o := range outcomes {
		calls += o.BrokenCalls
		for kind, n := range o.Injected {
			kinds[kind] = true
			faults += n
		}
	}
	fmt.Fprintf(out, "\n%d faults of %d kinds, %d calls of broken clients\n\n", faults, len(kinds), calls)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PROMISE\tLOOKED AT\tVIOLATIONS")
	for i, text := range checker.Promises() {
		looked, found := 0, 0
		for _, o := range outcomes {
			looked += looks(o)[i]
			found += len(checker.Of(o.Violations, i+1))
		}
		fmt.Fprintf(table, "%d. %s\t%d\t%d\n", i+1, text, looked, found)
		if looked == 0 {
			err = errors.New("not everything was tested: see the zeros under LOOKED AT")
		}
	}
	return errors.Join(err, table.Flush())
}

// looks is how often a user could have noticed that each promise is broken.
func looks(o checker.Outcome) []int {
	return []int{o.Operations, o.DeadTokens, o.Objects, o.Tokens, o.Pods, o.LogBytes, o.BrokenCalls, o.Samples, o.Writes}
}

// plantTimeout is how long a planted build has to get well, which it must not, and an
// ordinary one beside it, which must show nothing of any plant by then.
const plantTimeout = 2500 * time.Millisecond

// Planted has one replica of a planted build go through the race that shows the plant, and
// returns what it shows of it.
func (w *World) Planted(ctx context.Context, plant planted.Plant, binary devcluster.Binary) ([]checker.Violation, error) {
	binary.Env = []string{planted.Variable + "=" + plant.Name}
	found, err := w.struck(ctx, "planted-"+strings.ReplaceAll(plant.Name, " ", "-"), binary, plant.Race)
	return plant.Shown(found), err
}

// Control has one replica of an ordinary build go through the races of all plants, and returns what it
// shows of any plant. That has to be nothing, or what is found in planted
// builds proves nothing.
func (w *World) Control(ctx context.Context, binary devcluster.Binary) ([]checker.Violation, error) {
	found, err := w.struck(ctx, "planted-nothing", binary, slices.Collect(maps.Keys(races))...)
	var shown []checker.Violation
	for _, plant := range planted.Plants() {
		shown = append(shown, plant.Shown(found)...)
	}
	return shown, err
}

// raceTimeout bounds a race, on a machine that is busy.
const raceTimeout = time.Minute

// races are what plants show in.
var races = map[string]func(w *World, ctx context.Context, in *workload.Namespace) error{
	"fills": (*World).fill,
	"lease": (*World).writeWithoutLease,
}

// struck has one replica go through races, each in a namespace of its own, and returns all that is found.
func (w *World) struck(ctx context.Context, prefix string, binary devcluster.Binary,
	names ...string) (found []checker.Violation, err error) {
	defer func() { err = errors.Join(err, w.retire()) }()
	if err := w.deploy(ctx, binary, 1); err != nil {
		return nil, err
	}
	model := workload.Model{}
	for _, name := range names {
		n := workload.NewNamespace(prefix + "-" + name)
		model[n.Name] = n
		limit, cancel := context.WithTimeout(ctx, raceTimeout)
		err := errors.Join(w.client.CreateNamespace(limit, n.Name), races[name](w, limit, n))
		cancel()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	// Elsewhere in the cluster is what an earlier plant has left behind.
	outcome, err := w.check(ctx, scope{model: model, prefix: prefix, timeout: plantTimeout})
	for name := range model {
		err = errors.Join(err, w.client.DeleteNamespace(ctx, name))
	}
	return outcome.Violations, err
}

// fill has a Secret filled.
func (w *World) fill(ctx context.Context, n *workload.Namespace) error {
	if err := errors.Join(w.makeAccount(ctx, n, "someone"), w.client.MakeTokenSecret(ctx, n, "token", "someone", "extra")); err != nil {
		return err
	}
	return await.Poll(ctx, func(ctx context.Context) error {
		secret, err := w.client.CoreV1().Secrets(n.Name).Get(ctx, "token", metav1.GetOptions{})
		if err == nil && len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			err = errors.New("the Secret has no token")
		}
		return err
	})
}

// writeWithoutLease keeps the leader from its Lease and gives it work all the time.
func (w *World) writeWithoutLease(ctx context.Context, n *workload.Namespace) error {
	leader, err := w.leader(ctx)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	defer close(over)
	leader.now().proxy.Hold(faultproxy.On("", "leases"), over)
	end := time.Now().Add(afterDeadline)
	for i := 0; time.Now().Before(end); i++ {
		if err := w.makeAccount(ctx, n, fmt.Sprintf("account-%d", i)); err != nil {
			return err
		}
		await.Sleep(ctx, 200*time.Millisecond)
	}
	return nil
}

// makeAccount gives it lists of the user's.
func (w *World) makeAccount(ctx context.Context, n *workload.Namespace, name string) error {
	account := &workload.Account{Note: "note", Foreign: []string{"first", "second"}, Pulls: []string{"pull"}}
	n.Accounts[name] = account
	return w.client.CreateAccount(ctx, n.Name, name, account)
}
