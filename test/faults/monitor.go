// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"sync"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/overload"
	"sa-controller-manager/test/measure"
)

// monitor looks at every process each second: at its memory from outside, and at the rest as it
// says itself.
type monitor struct {
	world  *World
	stop   context.CancelFunc
	done   chan struct{}
	asking sync.WaitGroup

	mu      sync.Mutex
	known   map[*term]*watched
	samples int
	most    checker.Sample
	found   []checker.Violation
	// race reports that the processes are race-enabled.
	race bool
	// starved: other programs used the processors in the last second.
	starved bool
}

// watched is what the monitor knows of a process.
type watched struct {
	// last is the last answer, nil before the first: nothing is expected of it until then.
	last *checker.Sample
	// rest is the first answer with which it was ready.
	rest *checker.Sample
	// asked reports that an answer is awaited.
	asked bool
	// unanswered is how many seconds have begun since the last answer.
	unanswered int
}

func startMonitor(w *World) *monitor {
	ctx, stop := context.WithCancel(context.Background())
	m := &monitor{world: w, stop: stop, done: make(chan struct{}), known: map[*term]*watched{}}
	go m.run(ctx)
	return m
}

func (m *monitor) run(ctx context.Context) {
	defer close(m.done)
	defer m.asking.Wait()
	var spent overload.ProcessorTime
	for await.Sleep(ctx, time.Second) {
		spent = m.noteOthers(spent)
		for _, r := range m.world.all() {
			m.look(ctx, r)
		}
	}
}

// noteOthers notes whether other programs have taken the machine since.
func (m *monitor) noteOthers(before overload.ProcessorTime) overload.ProcessorTime {
	now, err := overload.ReadProcessorTime()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starved = err == nil && now.OthersSince(before) > overload.MostByOthers
	if m.starved {
		m.world.excuses.Add(&checker.Interval{From: time.Now().Add(-time.Second), To: time.Now(), Excuse: checker.Starved})
	}
	return now
}

func (m *monitor) end() {
	m.stop()
	<-m.done
}

func (m *monitor) isRace() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.race
}

func (m *monitor) setRace(race bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.race = race
}

// look takes a sample of the memory of the replica's process, counts the second, and asks it for the rest, unless
// it still owes an answer. It does not wait for that: others are to be looked at.
func (m *monitor) look(ctx context.Context, r *Replica) {
	t := r.now()
	if t == nil || t.manager == nil || gone(t) {
		return
	}
	memory, err := measure.MemoryOf(t.manager.PID())
	if err != nil {
		return // it has ended since
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.known[t]
	if p == nil {
		p = &watched{}
		m.known[t] = p
	}
	if p.last != nil {
		m.samples++
		m.most.RssAnon = max(m.most.RssAnon, memory.Anon)
		m.judge(r.name, checker.Sample{RssAnon: memory.Anon, Secrets: m.world.tokens.Secrets()}, p.rest)
		m.count(r, p)
	}
	if !p.asked {
		p.asked = true
		m.asking.Go(func() { m.ask(ctx, r, t, p) })
	}
}

// count counts a second in which the process has not answered yet. The caller holds mu.
func (m *monitor) count(r *Replica, p *watched) {
	switch {
	case r.isPaused():
		p.unanswered = 0
		return
	case m.starved:
		return
	}
	m.most.Unanswered = max(m.most.Unanswered, p.unanswered)
	if p.unanswered == checker.UnansweredAtMost {
		m.found = append(m.found, checker.Violated(8, "%s has not answered for %d s, so its goroutines are unknown", r.name, p.unanswered))
	}
	p.unanswered++
}

// ask has the process say how it is.
func (m *monitor) ask(ctx context.Context, r *Replica, t *term, p *watched) {
	ctx, cancel := context.WithTimeout(ctx, checker.UnansweredAtMost*time.Second)
	defer cancel()
	metrics, err := t.manager.Metrics(ctx)
	sample := checker.Sample{Secrets: m.world.tokens.Secrets()}
	if err == nil {
		sample.Goroutines = int(metrics.Sum("go_goroutines", nil))
		sample.InFlight = int(metrics.Sum("sacm_webhook_requests_in_flight", devcluster.Labels{}))
		var memory measure.Memory
		memory, err = measure.MemoryOf(t.manager.PID())
		sample.RssAnon = memory.Anon
		_, notReady := t.manager.Get(ctx, "/readyz")
		sample.Ready = notReady == nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.asked = false
	if err != nil {
		return
	}
	p.last, p.unanswered = &sample, 0
	if p.rest == nil && sample.Ready {
		p.rest = &sample
	}
	m.most.Goroutines = max(m.most.Goroutines, sample.Goroutines)
	// The memory is looked at each second, whether or not answers come.
	m.judge(r.name, checker.Sample{Goroutines: sample.Goroutines, InFlight: sample.InFlight}, p.rest)
}

// judge holds a sample to the limits. The caller holds mu.
func (m *monitor) judge(name string, sample checker.Sample, rest *checker.Sample) {
	if what := sample.Exceeds(rest, m.race); what != "" {
		m.found = append(m.found, checker.Violated(8, "%s: %s", name, what))
	}
}

// take returns what was seen since the last call.
func (m *monitor) take() (samples int, most checker.Sample, found []checker.Violation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	samples, most, found = m.samples, m.most, m.found
	m.samples, m.most, m.found = 0, checker.Sample{}, nil
	return samples, most, found
}

// awaitRest returns once each process has as few goroutines as one that no client connects to, and
// reports one that keeps those of clients who are gone.
func (w *World) awaitRest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, devcluster.RestLimit)
	defer cancel()
	for _, r := range w.all() {
		if err := r.now().manager.AwaitRest(ctx); err != nil {
			w.report(checker.Violated(8, "%v after the last client has gone: %v", devcluster.RestLimit, err))
		}
	}
}
