// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package relying

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/notify"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/signing"
)

// resync is how often documents are read although the ring has not changed.
const resync = 5 * time.Minute

// Config is what a Publisher needs. Clock may be nil.
type Config struct {
	Directories []Directory
	Documents   Documents
	Ring        *signing.Keyring
	Metrics     *Metrics
	Loops       *reconcile.Metrics
	Clock       clock.WithTicker
}

// Publisher keeps the documents in each directory of --publish-keys equal to the key ring, on every replica. It
// publishes when the ring changes, and checks every few minutes whether another program has changed a document.
// Shows and Status may be called from any goroutine.
type Publisher struct {
	Config

	// Passed notifies of each directory that was read, and written if it was to be.
	Passed notify.Change[Directory]

	loop *reconcile.Runner[Directory]

	mu     sync.Mutex
	passes map[Directory]pass // the last ones
}

// pass is the outcome of a pass: the ring that a directory holds, or why it does not.
type pass struct {
	ring *signing.Ring
	err  error
}

// New returns a Publisher that does not run yet.
func New(config Config) *Publisher {
	p := &Publisher{Config: config, passes: map[Directory]pass{}}
	p.loop = reconcile.New(reconcile.Config[Directory]{
		Name: "key_publisher", Workers: 1, Sync: p.sync, Metrics: config.Loops, Clock: config.Clock,
	})
	config.Ring.Changed.Subscribe(p.ringChanged)
	return p
}

func (p *Publisher) ringChanged(*signing.Ring) {
	for _, to := range p.Directories {
		p.loop.AddIfRunning(to)
	}
}

// Run publishes until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	for _, to := range p.Directories {
		p.loop.Add(to)
	}
	p.loop.Run(ctx)
	return nil
}

func (p *Publisher) sync(ctx context.Context, to Directory) error {
	ring := p.Ring.Ring()
	wrote, err := p.Documents.Publish(to, ring)
	if len(wrote) > 0 {
		klog.FromContext(ctx).Info("Published the keys", "destination", to.String(), "documents", wrote, "signs", ring.ActiveID())
	}
	p.Metrics.passed(to.String(), err)
	p.mu.Lock()
	p.passes[to] = pass{ring, err}
	p.mu.Unlock()
	p.Passed.Notify(to)
	if err != nil {
		return fmt.Errorf("publish the keys at %s: %w", to, err)
	}
	p.loop.AddAfter(to, resync)
	return nil
}

// Shows reports whether every directory holds a key.
func (p *Publisher) Shows(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, to := range p.Directories {
		if pass := p.passes[to]; pass.ring == nil || pass.err != nil || pass.ring.Role(id) == "" {
			return false
		}
	}
	return true
}

// Status names the directories that do not hold the keys, and why. It is "" if all do.
func (p *Publisher) Status() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failed []string
	for _, to := range p.Directories {
		if err := p.passes[to].err; err != nil {
			failed = append(failed, fmt.Sprintf("%s: %v", to, err))
		}
	}
	return strings.Join(failed, "; ")
}
