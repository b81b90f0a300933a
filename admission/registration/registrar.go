// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	informers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/reconcile"
)

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second

	// Where somebody else writes whenever we do, a few answers are at once and the
	// others once per interval. What they write is in force meanwhile, so that this is
	// within the two seconds that a person's edit may last.
	writeBurst    = 10
	writeInterval = time.Second
)

// Config says what a Registrar needs. Client and CABundle are required.
type Config struct {
	Spec

	Client kubernetes.Interface
	// CABundle is what to register now (certs.Source). While it is empty, nothing is
	// written.
	CABundle func() []byte
	// Arrived tells whether a probe came to this process (Answerer.Arrived). Nil takes
	// any answer under CABundle for proof: behind a balancer the call may always come to
	// another replica, because the apiserver keeps its connections.
	Arrived func(probeID string) bool
	// Attendance tells which hosts have a replica. Nil binds without asking, as does a Spec
	// that is not PerHost. It belongs to this Registrar alone.
	Attendance *Attendance
	// Warn reports a deleted configuration and a failed proof, as Events. It may be nil.
	Warn func(regarding *corev1.ObjectReference, reason, action, note string)
	// Changed is told each state that the registration comes to, in order. It must not
	// block. It may be nil.
	Changed func(State)
	Metrics *Metrics
	Clock   clock.WithTicker // nil means the real one
}

// Registrar keeps both configurations right.
type Registrar struct {
	config    Config
	probeID   string
	writes    *rate.Limiter
	watched   watched
	published published
	status    atomic.Pointer[Status]
	woken     chan struct{}

	// Only the goroutine of Run uses what follows.
	queue     workqueue.TypedRateLimitingInterface[string]
	recreated [kinds]time.Time
	proven    *proof                    // nil before
	failed    int                       // looks in a row
	told      string                    // the last failure that was reported
	leases    cache.SharedIndexInformer // of kube-apiservers; nil if no host is asked for
	round     string
	called    time.Time
	absence   absence
}

// New returns a Registrar that does not run yet. The spec must be valid.
func New(config Config) *Registrar {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	r := &Registrar{
		config: config,
		// 128 bits that nobody can guess: whoever knows them may be called a probe.
		probeID: rand.Text(),
		writes:  rate.NewLimiter(rate.Every(writeInterval), writeBurst),
		woken:   make(chan struct{}, 1),
	}
	r.status.Store(&Status{State: Idle})
	if config.Attendance != nil {
		config.Attendance.changed = r.Wake
	}
	return r
}

// Status is how far the registration is. While Run does not run, it is Idle.
func (r *Registrar) Status() Status { return *r.status.Load() }

// Check is nil unless the registration is not what it should be by now; it is what
// readiness shows.
func (r *Registrar) Check() error { return r.Status().Check() }

// Published tells since when every registered caBundle has had certificate. It is false
// while one has not, and while Run does not run.
func (r *Registrar) Published(certificate *x509.Certificate) (since time.Time, ok bool) {
	return r.published.of(certificate)
}

// Wake has the Registrar look again, such as when CABundle has changed. It does not
// block.
func (r *Registrar) Wake() {
	select {
	case r.woken <- struct{}{}:
	default: // a look is due anyway
	}
}

// newInformers watch the two objects by name.
func newInformers(client kubernetes.Interface) [kinds]cache.SharedIndexInformer {
	byName := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, Name).String()
	}
	return [kinds]cache.SharedIndexInformer{
		mutating:   informers.NewFilteredMutatingWebhookConfigurationInformer(client, 0, cache.Indexers{}, byName),
		validating: informers.NewFilteredValidatingWebhookConfigurationInformer(client, 0, cache.Indexers{}, byName),
	}
}

// Run works until ctx ends. In mode none it does nothing. It may be called again once
// it has returned, and then takes nothing for granted that the watches told before.
func (r *Registrar) Run(ctx context.Context) error {
	if r.config.Mode == None {
		<-ctx.Done()
		return nil
	}
	r.status.Store(&Status{Starting, "reading " + Name})
	defer r.status.Store(&Status{State: Idle})
	defer r.published.forget()
	r.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstBackoff, maxBackoff),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "webhook_registration", Clock: r.config.Clock},
	)
	defer r.queue.ShutDown()
	defer context.AfterFunc(ctx, r.queue.ShutDown)()
	var running sync.WaitGroup
	defer reconcile.AwaitWatches(running.Wait)
	var synced [kinds]<-chan struct{}
	r.watched.reset()
	for k, informer := range newInformers(r.config.Client) {
		handler, err := informer.AddEventHandler(r.handler(kind(k)))
		if err != nil {
			return fmt.Errorf("watch the %s %s: %w", kind(k), Name, err)
		}
		synced[k] = handler.HasSyncedChecker().Done()
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if err := r.watchHosts(ctx, &running); err != nil {
		return err
	}
	defer r.forgetHosts()
	for _, done := range synced {
		select {
		case <-ctx.Done():
			return nil
		case <-done:
		}
	}
	running.Go(func() { r.relay(ctx) })
	r.queue.Add(Name)
	for {
		key, shutdown := r.queue.Get()
		if shutdown {
			return nil
		}
		r.look(ctx, key)
	}
}

// relay turns calls of Wake, which may come before Run, into looks.
func (r *Registrar) relay(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.woken:
			r.queue.Add(Name)
		}
	}
}

func (r *Registrar) look(ctx context.Context, key string) {
	defer r.queue.Done(key)
	after, err := r.sync(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.fail(ctx, err)
		r.queue.AddRateLimited(key)
		return
	}
	r.failed, r.told = 0, ""
	r.queue.Forget(key)
	if after > 0 {
		r.queue.AddAfter(key, after)
	}
}

// sync takes one step and tells when to look again if nothing happens, zero for never.
// What it writes comes back through the watch.
func (r *Registrar) sync(ctx context.Context) (time.Duration, error) {
	last := r.watched.get()
	now, caBundle := r.config.Clock.Now(), r.config.CABundle()
	o := observation{
		spec: r.config.Spec, caBundle: caBundle,
		proven: r.proven.covers(caBundle), roll: r.roll(now), probeID: r.probeID, now: now,
	}
	for k, one := range last {
		o.found[k] = one.object.found()
		o.memory[k] = memory{seen: one.existed, deleted: one.deleted, off: one.off, recreated: r.recreated[k]}
	}
	r.published.observe(slices.Concat(o.found[mutating].entries, o.found[validating].entries), now)
	decided := plan(o)
	r.show(ctx, decided.status)
	if decided.status.State == Off || decided.status.State == Deleted {
		o.roll = roll{} // nobody is missed where nobody is called
	}
	r.noteMissing(ctx, o)
	if decided.call {
		if err := r.callRoll(ctx); err != nil {
			return 0, err
		}
	}
	if decided.probe {
		return 0, r.probe(ctx, caBundle)
	}
	if o.proven {
		r.proven = &proof{certificates(caBundle)}
	}
	return r.write(ctx, last, decided)
}
