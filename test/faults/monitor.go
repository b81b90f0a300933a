// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"sa-controller-manager/test/devcluster"
)

// Limits of promise 8.
const (
	// baseGoroutines is what a leader has at rest, with its watches and its two servers and
	// a connection of each client that it has in these runs, which is 300 at most, and one
	// for each connection to the webhook that waits, 256 that are new and 128 that are idle,
	// and for as many that are on their way out.
	baseGoroutines = 300 + 2*(256+128)
	perRequest     = 3
	// memorySlack and perSecret are in KiB.
	memorySlack = 64 << 10
	perSecret   = 1.5
)

// Sample is a process at one moment.
type Sample struct {
	Goroutines, InFlight int
	RssAnon              int // KiB
	Secrets              int // token Secrets in the cluster
	Runtime              runtimeMemory
}

// runtimeMemory is what Go's runtime has of it, in KiB.
type runtimeMemory struct{ heap, idle, stacks int }

func (r runtimeMemory) String() string {
	return fmt.Sprintf("heap %d, idle %d, stacks %d", r.heap, r.idle, r.stacks)
}

// runtimeMemoryIn reads runtime.MemStats out of the metrics.
func runtimeMemoryIn(metrics devcluster.Metrics) runtimeMemory {
	kib := func(name string) int { return int(metrics.Sum("go_memstats_"+name+"_bytes", nil)) >> 10 }
	return runtimeMemory{
		heap: kib("heap_inuse"), idle: kib("heap_idle") - kib("heap_released"), stacks: kib("stack_inuse"),
	}
}

// exceeds says which limit the sample breaks. base is RssAnon at the beginning. The race
// detector multiplies memory, so that does not count with it.
func (s Sample) exceeds(base Sample, raceEnabled bool) string {
	if most := baseGoroutines + perRequest*s.InFlight; s.Goroutines > most {
		return fmt.Sprintf("%d goroutines with %d requests in flight, want %d at most", s.Goroutines, s.InFlight, most)
	}
	most := base.RssAnon + memorySlack + int(perSecret*float64(max(0, s.Secrets-base.Secrets)))
	if !raceEnabled && s.RssAnon > most {
		return fmt.Sprintf("RssAnon is %d KiB (%v) with %d token Secrets, want %d KiB at most", s.RssAnon, s.Runtime, s.Secrets, most)
	}
	return ""
}

// monitor looks at every process each second.
type monitor struct {
	world *World
	stop  context.CancelFunc
	done  chan struct{}

	mu      sync.Mutex
	bases   map[*term]Sample
	samples int
	most    Sample
	found   []Violation
	// race tells that the processes are race-enabled.
	race bool
}

func startMonitor(w *World) *monitor {
	ctx, stop := context.WithCancel(context.Background())
	m := &monitor{world: w, stop: stop, done: make(chan struct{}), bases: map[*term]Sample{}}
	go m.run(ctx)
	return m
}

func (m *monitor) run(ctx context.Context) {
	defer close(m.done)
	pace := time.NewTicker(time.Second)
	defer pace.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
			for _, r := range m.world.all() {
				m.look(ctx, r)
			}
		}
	}
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

// look takes a sample of the replica's process. One that does not answer in time is looked
// at again in the next second.
func (m *monitor) look(ctx context.Context, r *Replica) {
	t := r.now()
	if t == nil || t.manager == nil || gone(t) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 900*time.Millisecond)
	defer cancel()
	metrics, err := t.manager.Metrics(ctx)
	if err != nil {
		return
	}
	anonymous, err := rssAnon(t.manager.PID())
	if err != nil {
		return
	}
	sample := Sample{
		Goroutines: int(metrics.Sum("go_goroutines", nil)),
		InFlight:   int(metrics.Sum("sacm_webhook_requests_in_flight", devcluster.Labels{})),
		RssAnon:    anonymous, Secrets: m.world.tokens.Secrets(), Runtime: runtimeMemoryIn(metrics),
	}
	m.keep(r, t, sample)
}

func (m *monitor) keep(r *Replica, t *term, sample Sample) {
	m.mu.Lock()
	defer m.mu.Unlock()
	base, known := m.bases[t]
	if !known {
		base = sample
		m.bases[t] = base
	}
	m.samples++
	m.most.Goroutines = max(m.most.Goroutines, sample.Goroutines)
	m.most.InFlight = max(m.most.InFlight, sample.InFlight)
	m.most.RssAnon = max(m.most.RssAnon, sample.RssAnon)
	if what := sample.exceeds(base, m.race); what != "" {
		m.found = append(m.found, violated(8, "%s: %s", r.name, what))
	}
}

// take returns what was seen since the last call.
func (m *monitor) take() (samples int, most Sample, found []Violation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	samples, most, found = m.samples, m.most, m.found
	m.samples, m.most, m.found = 0, Sample{}, nil
	return samples, most, found
}

// rssAnon reads a process's memory in KiB (proc(5), RssAnon in /proc/pid/status).
func rssAnon(pid int) (int, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "RssAnon:"); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		}
	}
	return 0, fmt.Errorf("no RssAnon in /proc/%d/status", pid)
}
