// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keypublisher keeps the published keys of the issuer equal to the key ring, at each
// destination of --publish-keys. It publishes when the ring changes, and checks every few minutes
// whether another program has changed a document.
//
// Every replica writes a destination that each host has for itself. Only the leader writes any other.
package keypublisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/publish"
)

const (
	queueName = "key_publisher"
	// resync is how often documents are read although the ring has not changed.
	resync = 5 * time.Minute
	// timeout of one pass, which has five requests at most.
	timeout = 30 * time.Second
)

// Config is what a Publisher needs. Clock may be nil.
type Config struct {
	// Name is the end of the queue's name.
	Name         string
	Destinations []publish.Destination
	Documents    publish.Publisher
	Ring         *signing.Keyring
	Recorder     *events.Recorder
	// Process is the object that Events about this process regard.
	Process *corev1.ObjectReference
	Metrics *Metrics
	Loops   *reconcile.Metrics
	Clock   clock.WithTicker
}

// Publisher publishes keys. RingChanged and Status may be called from any goroutine.
type Publisher struct {
	Config
	loop *reconcile.Runner[int] // keys are indices of Destinations

	mu     sync.Mutex
	status map[int]string // of destinations that do not hold the keys
}

// New returns a Publisher that does not run yet.
func New(config Config) *Publisher {
	p := &Publisher{Config: config, status: map[int]string{}}
	p.loop = reconcile.New(reconcile.Config[int]{
		Name: queueName + config.Name, Workers: 1, Sync: p.sync, Metrics: config.Loops, Clock: config.Clock,
	})
	return p
}

// RingChanged must be called after the ring has changed. It does not block.
func (p *Publisher) RingChanged(context.Context) {
	for i := range p.Destinations {
		p.loop.AddIfRunning(i)
	}
}

// Run publishes until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	defer p.stopped()
	for i := range p.Destinations {
		p.loop.Add(i)
	}
	p.loop.Run(ctx)
	return nil
}

// stopped removes the status and the series, which the next leader shows.
func (p *Publisher) stopped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.status)
	for _, to := range p.Destinations {
		p.Metrics.forget(to.String())
	}
}

func (p *Publisher) sync(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	to := p.Destinations[i]
	ring := p.Ring.Ring()
	result, err := p.Documents.Pass(ctx, to, ring)
	p.report(ctx, to, ring, result)
	if errors.Is(err, publish.ErrConflict) {
		err = fmt.Errorf("%w: %w", reconcile.ErrStaleCache, err) // reported if it persists
	}
	p.show(i, err)
	if err != nil {
		return fmt.Errorf("publish the keys at %s: %w", to, err)
	}
	p.loop.AddAfter(i, resync)
	return nil
}

func (p *Publisher) show(i int, err error) {
	to := p.Destinations[i].String()
	p.Metrics.passed(to, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.status, i)
	if err != nil {
		p.status[i] = fmt.Sprintf("%s: %v", to, err)
	}
}

// report logs and records what a pass has done.
func (p *Publisher) report(ctx context.Context, to publish.Destination, ring *signing.Ring, result publish.Result) {
	logger := klog.FromContext(ctx)
	for _, id := range result.Foreign {
		id = printable(id)
		p.Metrics.foreign(to.String(), id)
		logger.Info("Found a published key that is not in the key ring", "destination", to.String(), "keyID", id)
		p.Recorder.Warn(p.Process, "ForeignKeyPublished", "Publish",
			fmt.Sprintf("%s had key %q, which is not ours: its owner could sign tokens that relying parties accept", to, id))
	}
	if len(result.Wrote) > 0 {
		logger.Info("Published the keys", "destination", to.String(), "documents", result.Wrote, "generation", ring.Generation(), "signs", ring.ActiveID())
	}
}

// Status names the destinations that do not hold the keys, and why. It is "" if all do.
func (p *Publisher) Status() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failed []string
	for i := range p.Destinations {
		if status := p.status[i]; status != "" {
			failed = append(failed, status)
		}
	}
	return strings.Join(failed, "; ")
}

// maxID is the longest part of a foreign key ID that becomes the label of a metric. IDs of ours are
// shorter.
const maxID = 64

// printable returns a foreign key ID as the label of a metric.
func printable(id string) string {
	runes := []rune(strings.ToValidUTF8(id, "?"))
	runes = runes[:min(len(runes), maxID)]
	for i, r := range runes {
		if r < ' ' || r > '~' {
			runes[i] = '?'
		}
	}
	return cmp.Or(string(runes), "none")
}
