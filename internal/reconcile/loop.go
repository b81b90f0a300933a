// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reconcile runs a sync function over a queue of keys. It is the only loop of
// the controllers: workers, retries and draining are decided here once.
//
// A key is never given up. A sync that returns an error is tried again after a
// back-off that doubles up to a cap; a key that has failed often is counted as
// stuck in a metric until it succeeds. Keys are compared by value, and one key is
// never in two workers at a time.
package reconcile

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// The first retry comes at once for a person and late enough for a busy
	// apiserver; the cap keeps a broken key visible without a second's load.
	firstBackoff = 20 * time.Millisecond
	maxBackoff   = time.Minute

	// stuckAfter failures in a row take about ten seconds to collect: longer
	// than a conflict or a leader change of the apiserver, shorter than an outage.
	stuckAfter = 10
)

// ErrBehind is what a sync returns, wrapped, whose cache does not show yet what has
// happened. It is tried again like any failure, and is none that anybody is told of
// unless it goes on.
var ErrBehind = errors.New("the cache is behind")

// Config describes one loop. Name is the queue's name in workqueue metrics.
type Config[K comparable] struct {
	Name    string
	Workers int
	Sync    func(context.Context, K) error
	Metrics *Metrics
	// MaxBackoff is a minute if zero.
	MaxBackoff time.Duration
	// Clock is the real one if nil.
	Clock clock.WithTicker
}

// Loop is a rate-limited queue and the workers that empty it. Add, AddAfter and
// AddIfRunning may be called from any goroutine, also before Run. Run may be called again
// once it has returned.
type Loop[K comparable] struct {
	Config[K]
	stuck stuckKeys[K]

	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[K] // nil until somebody needs it
	running bool
}

// New builds a loop that does not run yet.
func New[K comparable](config Config[K]) *Loop[K] {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.MaxBackoff == 0 {
		config.MaxBackoff = maxBackoff
	}
	return &Loop[K]{
		Config: config,
		stuck:  stuckKeys[K]{keys: map[K]struct{}{}, report: config.Metrics.stuckGauge(config.Name)},
	}
}

// current is the queue to add to now.
func (l *Loop[K]) current() workqueue.TypedRateLimitingInterface[K] {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		l.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstBackoff, l.MaxBackoff),
			workqueue.TypedRateLimitingQueueConfig[K]{Name: l.Name, Clock: l.Clock},
		)
	}
	return l.queue
}

// begin is current, for Run.
func (l *Loop[K]) begin() workqueue.TypedRateLimitingInterface[K] {
	queue := l.current()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = true
	return queue
}

// drop ends the queue for good: one that was shut down takes no more keys.
func (l *Loop[K]) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue, l.running = nil, false
	l.stuck.clear()
}

// Add queues key for a sync. Adding a key that waits already changes nothing;
// adding one that is being worked on makes it be worked on once more.
func (l *Loop[K]) Add(key K) { l.current().Add(key) }

// AddAfter queues key once delay has passed. It does not count as a failure.
func (l *Loop[K]) AddAfter(key K, delay time.Duration) { l.current().AddAfter(key, delay) }

// AddIfRunning queues key while Run works, and does nothing otherwise. It is for what is
// told to replicas that do not lead as well, if who begins to lead looks at all keys
// anyway: nobody would empty their queues, whose depth is a metric.
func (l *Loop[K]) AddIfRunning(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		l.queue.Add(key)
	}
}

// Run works until ctx ends. After that no sync begins; those under way may finish
// within drainTimeout and are cancelled then, or at once if that is what the cause of
// ctx asks for. Run returns when all workers have. What is added while it ends is lost;
// what still waits is, too.
func (l *Loop[K]) Run(ctx context.Context) {
	syncCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	queue := l.begin()
	defer l.drop()

	var workers sync.WaitGroup
	for range l.Workers {
		workers.Go(func() {
			for l.next(ctx, syncCtx, queue) {
			}
		})
	}
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), ErrAtOnce) {
		cancel()
	}
	queue.ShutDown()
	expired := time.AfterFunc(drainTimeout, cancel)
	defer expired.Stop()
	workers.Wait()
	discard(queue)
}

// discard takes what nobody will work on out of the queue, whose depth is a metric.
func discard[K comparable](queue workqueue.TypedRateLimitingInterface[K]) {
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		queue.Done(key)
	}
}

// next works on one key and tells whether to go on.
func (l *Loop[K]) next(ctx, syncCtx context.Context, queue workqueue.TypedRateLimitingInterface[K]) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	// The queue hands out what it still holds after ShutDown; that is not to begin.
	if ctx.Err() != nil {
		return false
	}
	logger := klog.LoggerWithValues(klog.FromContext(syncCtx), "queue", l.Name, "key", key)
	err := l.sync(klog.NewContext(syncCtx, logger), key)
	if err == nil {
		queue.Forget(key)
		l.stuck.remove(key)
		return true
	}
	if errors.Is(context.Cause(ctx), ErrAtOnce) {
		return false // it was cut off
	}
	l.retry(logger, queue, key, err)
	return true
}

func (l *Loop[K]) retry(logger klog.Logger, queue workqueue.TypedRateLimitingInterface[K], key K, err error) {
	failures := queue.NumRequeues(key) + 1
	switch {
	case failures == stuckAfter:
		l.stuck.add(key)
		logger.Error(err, "Key is stuck, retries go on", "failures", failures)
	case apierrors.IsConflict(err) || errors.Is(err, ErrBehind) || failures > 1:
		logger.V(4).Info("Sync will be retried", "failures", failures, "err", err)
	default:
		logger.Error(err, "Sync will be retried")
	}
	queue.AddRateLimited(key)
}

// stuckKeys is the set of keys that have failed stuckAfter times in a row.
type stuckKeys[K comparable] struct {
	report func(int)
	mu     sync.Mutex
	keys   map[K]struct{}
}

func (s *stuckKeys[K]) add(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = struct{}{}
	s.report(len(s.keys))
}

func (s *stuckKeys[K]) remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.keys[key]; !ok {
		return
	}
	delete(s.keys, key)
	s.report(len(s.keys))
}

func (s *stuckKeys[K]) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) > 0 {
		clear(s.keys)
		s.report(0)
	}
}
