// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults tries to break the promises of docs/reliability.md with what only real parts have: processes that are killed and
// paused, connections that fall silent, a kube-apiserver and an etcd that are away, and commands that are killed.
//
// Users churn namespaces, accounts, Secrets and Pods (package workload) while two replicas work, each behind a proxy, and one
// fault after the other comes, in an order that a seed says. Then all faults end, and the judge of the simulation (package
// checker) reads the API until all is well; kube-apiserver itself judges each token.
//
// What must never happen: that the suite blames the product for what a fault excuses.
package faults

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

var (
	seed   = flag.Uint64("seed", 0, "Seed of users and schedule; 0 draws one.")
	length = flag.Duration("for", 15*time.Second, "How long faults are injected. Every kind comes once at least.")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000) + 1
	}
	os.Exit(testcluster.Main(m))
}

// TestFaults has faults of processes and connections come, and those of the registration last, because how fast it is repaired is
// promised for healthy watches.
func TestFaults(t *testing.T) {
	w := newWorld(t, workload.ModeOf(*seed), nil)
	w.launch(t)
	w.launch(t)
	w.calm(t)
	w.churn(t)
	w.strike(t, processes, *length)
	w.calm(t)
	w.strike(t, registrations, *length/4)
	w.check(t, w.end(), "")
}

// fault is one kind.
type fault struct {
	name string
	// lasts is how long, at least.
	lasts  time.Duration
	excuse excuse
	// once: the product takes a second time within ten minutes for intent, and complies.
	once bool
	// inject begins it and returns what ends it.
	inject func(t *testing.T, w *world) (heal func())
}

const (
	// short is over before another replica leads, and lapse is not.
	short = 1500 * time.Millisecond
	lapse = leaseDuration + 2*time.Second
	// breather is what is waited between two faults, at least. Twice that at most.
	breather = 500 * time.Millisecond
)

// interrupting are the faults that interrupt what is done in several steps.
var interrupting = []fault{
	{name: "leader-killed", lasts: short, excuse: refused, inject: killLeader},
	{name: "apiserver-killed", lasts: short, excuse: refused, inject: killAPIServer},
	{name: "etcd-killed", lasts: short, excuse: refused, inject: killEtcd},
}

var processes = append([]fault{
	{name: "leader-paused", lasts: lapse, excuse: refused, inject: pauseLeader},
	{name: "connections-silent", lasts: lapse, inject: silenceConnections},
}, interrupting...)

// strike has each kind come once, in an order that random chooses, and again until the time is over.
func (w *world) strike(t *testing.T, kinds []fault, length time.Duration) {
	t.Helper()
	begun := time.Now()
	for first := true; first || time.Since(begun) < length; first = false {
		for _, i := range w.random.Perm(len(kinds)) {
			fault := kinds[i]
			breath := breather + time.Duration(w.random.Int64N(int64(breather)))
			lasts := fault.lasts + time.Duration(w.random.Int64N(int64(fault.lasts/4+1)))
			if !first && (fault.once || time.Since(begun) > length) {
				continue
			}
			await.Sleep(t.Context(), breath)
			t.Logf("%s %s for %v", time.Now().Format("15:04:05"), fault.name, lasts)
			from := time.Now()
			heal := fault.inject(t, w)
			await.Sleep(t.Context(), lasts)
			heal()
			w.excuses = append(w.excuses, interval{from, time.Now(), fault.excuse})
		}
	}
}

func killLeader(t *testing.T, w *world) func() {
	t.Helper()
	leader := w.leader(t)
	_, err := leader.now().manager.Kill()
	testutil.Must(t, err)
	leader.now().proxy.Close()
	return func() {
		testutil.Must(t, leader.start(w.cluster))
		testutil.Must(t, leader.now().manager.Ready(testcluster.Context(t)))
	}
}

func pauseLeader(t *testing.T, w *world) func() {
	t.Helper()
	paused := w.leader(t).now()
	testutil.Must(t, paused.manager.Pause())
	return func() {
		paused.resumed = append(paused.resumed, time.Now())
		testutil.Must(t, paused.manager.Resume())
	}
}

func killAPIServer(t *testing.T, w *world) func() {
	t.Helper()
	testutil.Must(t, w.cluster.KillAPIServer())
	return func() { testutil.Must(t, w.cluster.StartAPIServer(testcluster.Context(t))) }
}

func killEtcd(t *testing.T, w *world) func() {
	t.Helper()
	testutil.Must(t, w.cluster.KillEtcd())
	return func() {
		testutil.Must(t, w.cluster.StartEtcd())
		testutil.Must(t, w.cluster.AwaitAPIServer(testcluster.Context(t)))
	}
}

// quickPings has processes find out within 5 s, in place of 45, that nobody answers on a connection
// (k8s.io/apimachinery pkg/util/net, http.go).
func quickPings(binary devcluster.Binary) devcluster.Binary {
	binary.Env = append(binary.Env, "HTTP2_READ_IDLE_TIMEOUT_SECONDS=2", "HTTP2_PING_TIMEOUT_SECONDS=3")
	return binary
}

// pingTimeout is how long that may take on a machine that is busy, and while other faults keep
// a process from connecting again.
const pingTimeout = 30 * time.Second

// silenceConnections has nothing pass any more through the connections that are open, and
// no peer close them. Only an unanswered ping shows it, and a process that has noticed opens
// another connection.
func silenceConnections(t *testing.T, w *world) func() {
	t.Helper()
	struck, begun := map[string]*life{}, time.Now()
	for _, r := range w.replicas {
		struck[r.name] = r.now()
		r.now().proxy.Silence()
	}
	return func() {
		ctx, cancel := context.WithTimeout(t.Context(), pingTimeout)
		defer cancel()
		for name, l := range struck {
			err := l.awaitRequest(ctx, func(r faultproxy.Request) bool { return r.Verb == "watch" && r.Began.After(begun) })
			testutil.Expect(t, err == nil, "promise 1: %s keeps using a silent connection: %v", name, err)
		}
		for _, l := range struck {
			l.proxy.EndSilence()
		}
	}
}
