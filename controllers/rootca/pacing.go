// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	// repairDelay is the time between the first write to a namespace and the next one. It doubles up
	// to maxRepairDelay each time that another write is needed by then.
	repairDelay    = time.Second
	maxRepairDelay = 5 * time.Minute
)

// pacing delays the next write to a namespace. Two publishers with different bundles would otherwise
// replace each other's writes without a pause. It also gives the watch time to show the write.
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

// wait returns the delay of the next write.
func (p *pacing) wait(namespace string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.due[namespace].Sub(now))
}

// wrote notes a write and returns the delay of the next one.
func (p *pacing) wrote(namespace string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	delay := p.backoff.When(namespace)
	p.due[namespace] = now.Add(delay)
	return delay
}

// forget removes the delay of the next write.
func (p *pacing) forget(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backoff.Forget(namespace)
	delete(p.due, namespace)
}
