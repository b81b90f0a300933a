// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simulation has the product's parts, in two or three replicas, work in a world of some virtual minutes: a model
// of the API server (package model), users, other clients and faults, all in one process and in a testing/synctest
// bubble. A seed decides what users do, when each request is answered and what becomes of it. Operations and checks are
// those of the fault suite (packages workload and checker); besides, each write of a replica is judged when it happens
// (writes.go), and what its requests cost (price.go). The key ring is one object in memory, which each replica takes in
// its own time: files, sockets and several kube-apiservers are for demo rotation.
//
// It is a module of its own, because k8s.io/kubernetes, whose controllers it can run in place of the product's, pins
// the versions of all other modules of Kubernetes.
package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	mathrand "math/rand" //nolint:depguard // apimachinery has it
	"math/rand/v2"
	"slices"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	corev1 "k8s.io/api/core/v1"
	_ "k8s.io/apimachinery/pkg/util/rand" // likewise
	_ "k8s.io/apimachinery/pkg/util/wait" // likewise
	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/workload"
)

// users is how many users there are, each in namespaces of its own.
const users = 2

// acts is how long users and faults act.
const acts = 150 * time.Second

// plan is what users do and what goes wrong, as the seed has it.
type plan struct {
	seed       uint64
	upstream   bool // kube-controller-manager's controllers are judged
	replicas   int
	workers    string
	rotates    bool // the key is retired
	restores   bool // etcd is put back to an older revision
	cleans     bool // some token Secrets are a year old
	oldLists   bool // kube-apiserver has no lists in watches
	hangs      bool // a fault lasts for minutes
	ahead      int  // the replica whose clock is an hour ahead, -1 for none
	operations []operation
}

// operation is one of a user, or a fault. Each draws numbers of its own, so that others may be dropped.
type operation struct {
	at   time.Duration
	user int    // -1 for a fault
	name string // of the fault
	id   int
	long bool // it lasts for minutes
	// number is its place in the plan of the seed.
	number int
}

func (o operation) String() string {
	if o.user < 0 {
		return fmt.Sprintf("%3d  %7.3fs  fault %d: %s", o.number, o.at.Seconds(), o.id, o.name)
	}
	return fmt.Sprintf("%3d  %7.3fs  operation %d of user %d", o.number, o.at.Seconds(), o.id, o.user)
}

func newPlan(seed uint64) *plan {
	p := &plan{seed: seed, replicas: 2, ahead: -1}
	worlds := draw(seed, "world")
	random := draw(seed, "plan")
	moment := func() time.Duration { return time.Duration(random.Int64N(int64(acts))) }
	if worlds.IntN(4) == 0 {
		p.replicas = 3
	}
	p.restores = worlds.IntN(12) == 0 && !p.rotates
	p.workers = []string{"5", "40"}[min(1, worlds.IntN(4))]
	p.rotates = worlds.IntN(6) == 0
	p.cleans = !p.rotates && worlds.IntN(4) == 0
	if p.rotates {
		p.operations = append(p.operations,
			operation{at: acts / 2, user: -1, name: []string{"rotation", "revocation"}[worlds.IntN(2)], id: 301})
	}
	if worlds.IntN(5) == 0 {
		p.operations = append(p.operations, operation{at: moment(), user: -1, name: "another root CA", id: 302})
	}
	p.oldLists = worlds.IntN(5) == 0
	if worlds.IntN(8) == 0 {
		p.ahead = worlds.IntN(p.replicas)
	}
	for id := range 24 + random.IntN(24) {
		p.operations = append(p.operations, operation{at: moment(), user: random.IntN(users), id: id})
	}
	for id := range 2 + random.IntN(6) {
		p.operations = append(p.operations, operation{at: moment(), user: -1, name: faults[random.IntN(len(faults)-1)].name, id: id})
	}
	for id := range worlds.IntN(5) {
		one := others[worlds.IntN(len(others)-3)]
		p.operations = append(p.operations, operation{at: moment(), user: -1, name: one.name, id: 200 + id})
	}
	if p.hangs = worlds.IntN(10) == 0; p.hangs {
		long := faults[worlds.IntN(len(faults)-1)]
		p.operations = append(p.operations, operation{at: moment(), user: -1, name: long.name, id: 300, long: true})
	}
	// The first user after the others has accounts that nobody edits. What the rest do is rarer, because it costs more or
	// leaves less to be seen of the rest.
	p.operations = append(p.operations, operation{at: time.Second, user: users, name: base, id: 100})
	for i, rare := range []string{many, unlisted, reuse, long, finalized} {
		if of := draw(seed, rare); of.IntN(5+5*min(i, 1)) == 0 {
			at := 20*time.Second + time.Duration(of.Int64N(int64(acts/2)))
			p.operations = append(p.operations, operation{at: at, user: users + 1 + i, name: rare, id: 101 + i})
			// No other user acts then: the order of goroutines decides which orphans are read one by one.
			if rare == many || rare == unlisted {
				p.operations = slices.DeleteFunc(p.operations, func(o operation) bool {
					return o.user < 0 || rare == many && o.at > at+20*time.Second && o.at < at+40*time.Second
				})
				p.rotates = p.rotates && rare != unlisted && rare != many
				break
			}
		}
	}
	if random.IntN(8) == 0 {
		p.operations = append(p.operations, operation{user: -1, name: "strange keys", id: 103})
	}
	slices.SortFunc(p.operations, func(a, b operation) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	for i := range p.operations {
		p.operations[i].number = i
	}
	return p
}

// act has all operations happen, and returns when the last one has ended.
func (w *world) act() {
	ends := acts
	var acting sync.WaitGroup
	for user := range users + 6 {
		u := w.user(user)
		acting.Go(func() {
			w.churn(u, user)
			w.mu.Lock()
			defer w.mu.Unlock()
			u.Add(w.model)
		})
	}
	for _, o := range w.plan.operations {
		if o.user >= 0 {
			continue
		}
		random := draw(w.plan.seed, fmt.Sprintf("fault %d", o.id))
		lasts := time.Second + time.Duration(random.Int64N(int64(24*time.Second)))
		if o.long {
			lasts *= 25
		}
		ends = max(ends, o.at+lasts)
		w.network.later(o.at, "fault: "+o.name, func() { strikeOf(o.name)(w, random, lasts) })
	}
	acting.Wait()
	time.Sleep(time.Until(w.network.began.Add(ends + time.Second)))
	if w.plan.rotates {
		w.deleteFilledElsewhere()
	}
	if w.plan.restores {
		if err := w.restore(); err != nil {
			w.violated(0, "restore: %v", err)
		}
	}
}

// restore puts etcd back to a revision before a last user came.
func (w *world) restore() error {
	ctx, c := context.Background(), w.user(users+6).Client
	var revision int64
	w.network.now(func() { revision = w.server.Revision() })
	n := workload.NewNamespace("forgotten")
	err := c.CreateNamespace(ctx, n.Name)
	for i := 0; i < 4 && err == nil; i++ {
		name := fmt.Sprintf("account-%d", i)
		err = errors.Join(makeAccount(c, n, name), c.MakeTokenSecret(ctx, n, name, name, "extra"))
	}
	random := w.network.draw("restore")
	for range 3 {
		w.network.now(func() { w.deleteBase(random) })
		await.Sleep(ctx, time.Duration(random.Int64N(int64(4*time.Second))))
	}
	w.network.later(time.Since(w.network.began), "etcd is restored", func() {
		for _, secret := range w.server.Objects("secrets") {
			w.writes.gone[goneKey(secret.(*corev1.Secret))] = time.Now()
		}
		w.server.Restore(revision)
		clear(w.writes.own)
		// No kube-apiserver serves what was asked for before, or while it is away.
		w.network.restarted = time.Now()
		w.network.strike(&fault{until: time.Now().Add(2 * time.Second), fate: refused})
		w.network.cutAll("", "")
		for _, namespace := range w.server.Objects("namespaces") {
			w.price.earned[namespace.GetName()] += 30 * perChange
		}
		w.price.earned[n.Name] += 30 * perChange
	})
	return err
}

// churn has a user do one operation after another.
func (w *world) churn(u *workload.User, user int) {
	for _, o := range w.plan.operations {
		if o.user != user {
			continue
		}
		time.Sleep(time.Until(w.network.began.Add(o.at)))
		random := draw(w.plan.seed, fmt.Sprintf("operation %d", o.id))
		what := o.name
		var err error
		switch o.name {
		case base:
			err = w.makeBase(u.Client)
		case many:
			err = w.deleteMany(u.Client, random)
		case reuse:
			err = w.reuse(u.Client, random)
		case long:
			err = w.longLists(u.Client)
		case finalized:
			err = w.finalizers(u.Client)
		case unlisted:
			err = w.unlisted(u.Client)
		default:
			what, err = u.Step(context.Background(), random)
		}
		if err != nil {
			w.violated(0, "operation %d of user %d: %s: %v", o.id, user, what, err)
		}
	}
}

// later plans a thing at a time of the run.
func (n *network) later(at time.Duration, name string, do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.planned = append(n.planned, &thing{name: name, due: n.began.Add(at), do: func(fate) string { do(); return "" }})
	n.wakeUp()
}

// now has the goroutine of run, which has the server, do a thing, and waits for it.
func (n *network) now(do func()) {
	done := make(chan struct{})
	n.later(time.Since(n.began), "", func() { do(); close(done) })
	<-done
}

// leader is the replica that has written the Lease last.
func (w *world) leader() int { return max(0, w.network.holder) }

// draw returns random numbers of a name.
func draw(seed uint64, name string) *rand.Rand {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, hash.Sum64()))
}

// jitterRand is what apimachinery spreads waits by: of leader election, and of informers after a failure.
//
//go:linkname jitterRand k8s.io/apimachinery/pkg/util/wait.jitterRand
var jitterRand func() float64

// nameRand is what it makes names of: of token Secrets.
//
//go:linkname nameRand k8s.io/apimachinery/pkg/util/rand.rng
var nameRand struct {
	sync.Mutex
	rand *mathrand.Rand
}

// moment has one random number at each moment of a run: whichever goroutine asks first, all get the same.
type moment struct {
	seed  uint64
	began time.Time
}

func (m moment) Int63() int64 { return draw(m.seed, time.Since(m.began).String()).Int64() }

func (moment) Seed(int64) {}

// seedRandom has waits and names be the same in each run of a seed.
func seedRandom(seed uint64, began time.Time) {
	numbers := mathrand.New(moment{seed, began})
	jitterRand = numbers.Float64
	nameRand.Lock()
	defer nameRand.Unlock()
	nameRand.rand = numbers
}
