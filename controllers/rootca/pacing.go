// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	// repairDelay is how long a namespace is left alone after the first write to it. It
	// doubles up to maxRepairDelay each time that the next write is needed by then.
	repairDelay    = time.Second
	maxRepairDelay = 5 * time.Minute
)

// pacing puts off writes to a namespace that was just written to. Two publishers with
// different bundles would otherwise undo each other's writes without a pause. It also gives
// the watch the time to show what was written.
type pacing struct {
	mu      sync.Mutex
	backoff workqueue.TypedRateLimiter[string]
	due     map[string]time.Time // when the next write may be made
}

func (p *pacing) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backoff = workqueue.NewTypedItemExponentialFailureRateLimiter[string](repairDelay, maxRepairDelay)
	p.due = map[string]time.Time{}
}

// wait is how long to put off a write.
func (p *pacing) wait(namespace string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.due[namespace].Sub(now))
}

// wrote notes a write, and returns how long to put off the next one.
func (p *pacing) wrote(namespace string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay := p.backoff.When(namespace)
	p.due[namespace] = now.Add(delay)
	return delay
}

// forget has the next write made at once.
func (p *pacing) forget(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backoff.Forget(namespace)
	delete(p.due, namespace)
}
