// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reconcile calls a sync function for the keys of a queue. It is the only queue
// loop of the program: workers, retries and draining are decided here once.
//
// A key is never given up. A sync that returns an error is requeued with a back-off that
// doubles up to a cap. Keys that keep failing share a rate limit, so that a cause which all keys
// of a large cluster have in common does not load kube-apiserver, and they leave half of the workers to the others. An
// event syncs such a key once in ten seconds. A metric counts keys as stuck until they succeed. The log shows the first
// ten errors of a queue and then one a second.
// Keys are compared by value, and one key is never in two workers at a time.
package reconcile

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// The first retry looks immediate to a user and spares a busy kube-apiserver; the cap keeps a
	// broken key visible at hardly any load.
	firstBackoff = 20 * time.Millisecond
	maxBackoff   = time.Minute

	// Keys that have failed more than sharedAfter times in a row are retried sharedRate times
	// a second, all together: of N such keys each is retried within N/sharedRate seconds,
	// or its own back-off if that is longer.
	sharedAfter = 5
	sharedRate  = 50

	// eventPeriod is how often events may have a key synced before its slot: another client that undoes each write of
	// an object sends one for each.
	eventPeriod = 10 * time.Second

	// busyDelay is the delay of a failed key while others take all the workers that failed keys may have.
	busyDelay = 100 * time.Millisecond

	// stuckDelay is the back-off from which a key counts as stuck: longer than conflicts or a leader
	// change of etcd last, shorter than an outage. A key that fails alone reaches it after ten failures.
	stuckDelay = 10 * time.Second
)

// ErrStaleCache is the error, wrapped, of a sync whose cache does not show a recent change yet. The
// key is retried like any failed one, but the error is logged only if it persists.
var ErrStaleCache = errors.New("the cache is stale")

// Config describes one Runner. Name is the queue's name in workqueue metrics.
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

// Runner is a rate-limited queue and the workers that empty it. Add, AddAfter and
// AddIfRunning may be called from any goroutine, also before Run. Run may be called again
// once it has returned.
type Runner[K comparable] struct {
	Config[K]
	stuck   stuckKeys[K]
	failing atomic.Int64   // workers with keys that have failed
	errors  rate.Sometimes // limits logged errors: a cause that many keys share is not logged for each

	mu      sync.Mutex
	queue   workqueue.TypedDelayingInterface[K] // nil until it is needed
	backoff *backoff[K]                         // of the keys in queue
	running bool
}

// New builds a Runner that does not run yet.
func New[K comparable](config Config[K]) *Runner[K] {
	config.Clock = cmp.Or[clock.WithTicker](config.Clock, clock.RealClock{})
	config.MaxBackoff = cmp.Or(config.MaxBackoff, maxBackoff)
	return &Runner[K]{
		Config: config,
		stuck:  stuckKeys[K]{keys: map[K]struct{}{}, report: config.Metrics.stuckGauge(config.Name)},
		errors: rate.Sometimes{First: 10, Interval: time.Second},
	}
}

// current returns the queue to add to.
func (r *Runner[K]) current() workqueue.TypedDelayingInterface[K] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue == nil {
		r.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[K]{Name: r.Name, Clock: r.Clock})
		r.backoff = newBackoff[K](r.MaxBackoff, r.Clock)
	}
	return r.queue
}

// Open makes AddIfRunning queue keys before Run does. Between the two a change that queues its keys
// with it would be lost.
func (r *Runner[K]) Open() { r.begin() }

// begin returns the queue that Run empties.
func (r *Runner[K]) begin() workqueue.TypedDelayingInterface[K] {
	queue := r.current()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = true
	return queue
}

// drop discards the queue: one that was shut down takes no more keys.
func (r *Runner[K]) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue, r.backoff, r.running = nil, nil, false
	r.stuck.clear()
}

// Add queues key for a sync. Adding a key that is queued already changes nothing; one that
// is in a worker is synced once more afterwards.
func (r *Runner[K]) Add(key K) { r.current().Add(key) }

// AddAfter queues key once delay has passed. It does not count as a failure.
func (r *Runner[K]) AddAfter(key K, delay time.Duration) { r.current().AddAfter(key, delay) }

// AddIfRunning queues key while Run works, and is a no-op otherwise. Use it for events of replicas
// that do not lead: no worker would empty their queues, whose depth is a metric, and a new leader
// syncs all keys anyway.
func (r *Runner[K]) AddIfRunning(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		r.queue.Add(key)
	}
}

// Run works until ctx ends. After that no sync begins; those under way are cancelled after
// DrainTimeout, or immediately if the cause of ctx is ErrAtOnce. Run returns when all workers
// have. Keys that are still queued then are lost.
func (r *Runner[K]) Run(ctx context.Context) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "queue", r.Name)
	syncCtx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logger))
	defer cancel()
	queue := r.begin()
	defer r.drop()

	var workers sync.WaitGroup
	for range r.Workers {
		workers.Go(func() {
			for r.next(ctx, syncCtx, queue) {
			}
		})
	}
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), ErrAtOnce) {
		cancel()
	}
	queue.ShutDown()
	expired := time.AfterFunc(DrainTimeout, cancel)
	defer expired.Stop()
	workers.Wait()
}

// next works on one key, unless ctx has ended, and reports whether to continue.
func (r *Runner[K]) next(ctx, syncCtx context.Context, queue workqueue.TypedDelayingInterface[K]) bool {
	key, shutdown := queue.Get()
	if shutdown {
		return false
	}
	defer queue.Done(key)
	if ctx.Err() != nil {
		return true // the queue, whose depth is a metric, returns its keys also after ShutDown
	}
	wait := r.backoff.wait(key)
	if r.backoff.NumRequeues(key) > 0 && wait == 0 {
		defer r.failing.Add(-1)
		if r.failing.Add(1) > int64(max(1, r.Workers/2)) {
			wait = busyDelay
		}
	}
	if wait > 0 {
		queue.AddAfter(key, wait)
		return true
	}
	err := r.sync(syncCtx, key)
	if err == nil {
		r.backoff.Forget(key)
		r.stuck.remove(key)
		return true
	}
	if errors.Is(context.Cause(ctx), ErrAtOnce) {
		return true // the sync was cancelled
	}
	r.retry(klog.LoggerWithValues(klog.FromContext(syncCtx), "key", key), queue, key, err)
	return true
}

func (r *Runner[K]) retry(logger klog.Logger, queue workqueue.TypedDelayingInterface[K], key K, err error) {
	delay := r.backoff.When(key)
	failures := r.backoff.NumRequeues(key)
	switch {
	case delay >= stuckDelay && r.stuck.add(key):
		r.errors.Do(func() { logger.Error(err, "Key is stuck and is still retried", "failures", failures) })
	case apierrors.IsConflict(err) || errors.Is(err, ErrStaleCache) || failures > 1:
		logger.V(4).Info("Failed to sync, retrying", "failures", failures, "err", err)
	default:
		r.errors.Do(func() { logger.Error(err, "Failed to sync, retrying") })
	}
	queue.AddAfter(key, delay)
}

// backoff decides how long failed keys wait.
type backoff[K comparable] struct {
	workqueue.TypedRateLimiter[K] // of each key
	shared                        *rate.Limiter
	clock                         clock.PassiveClock
	slots                         sync.Map // of K: slot, once they share
}

// slot is when the shared rate lets a key be retried, and when the key has failed last.
type slot struct{ at, failed time.Time }

func newBackoff[K comparable](most time.Duration, clock clock.PassiveClock) *backoff[K] {
	return &backoff[K]{
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstBackoff, most), rate.NewLimiter(sharedRate, 1), clock, sync.Map{},
	}
}

// When counts one more failure of key and returns its delay. A key that an event has queued before its slot keeps
// that slot: an object that fails and changes all the time would otherwise delay all others.
func (b *backoff[K]) When(key K) time.Duration {
	own := b.TypedRateLimiter.When(key)
	if b.NumRequeues(key) <= sharedAfter {
		return own
	}
	now := b.clock.Now()
	last, ok := b.slots.Load(key)
	if ok && now.Before(last.(slot).at) {
		b.slots.Store(key, slot{last.(slot).at, now})
		return last.(slot).at.Sub(now)
	}
	delay := max(own, b.shared.ReserveN(now, 1).DelayFrom(now))
	b.slots.Store(key, slot{now.Add(delay), now})
	return delay
}

// wait returns how long a key must wait that an event has queued before its slot.
func (b *backoff[K]) wait(key K) time.Duration {
	last, ok := b.slots.Load(key)
	if !ok {
		return 0
	}
	now := b.clock.Now()
	return max(0, min(last.(slot).at.Sub(now), last.(slot).failed.Add(eventPeriod).Sub(now)))
}

// Forget ends the back-off of a key that has succeeded.
func (b *backoff[K]) Forget(key K) {
	b.TypedRateLimiter.Forget(key)
	b.slots.Delete(key)
}

// stuckKeys is the set of keys that had to wait for stuckDelay and have not succeeded since.
type stuckKeys[K comparable] struct {
	report func(int)
	mu     sync.Mutex
	keys   map[K]struct{}
}

// add reports whether key is new.
func (s *stuckKeys[K]) add(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.keys[key]; ok {
		return false
	}
	s.keys[key] = struct{}{}
	s.report(len(s.keys))
	return true
}

func (s *stuckKeys[K]) remove(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.keys[key]; ok {
		delete(s.keys, key)
		s.report(len(s.keys))
	}
}

func (s *stuckKeys[K]) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) > 0 {
		clear(s.keys)
		s.report(0)
	}
}
