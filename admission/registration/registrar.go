// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	informers "k8s.io/client-go/informers/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/reconcile"
)

const (
	// queueName is that of the queue in metrics.
	queueName  = "webhook_registration"
	maxBackoff = 30 * time.Second

	// Where somebody else writes whenever we do, a few answers are at once and the
	// others once per interval. What they write is in force meanwhile, so that this is
	// within the two seconds that a person's edit may last.
	writeBurst    = 10
	writeInterval = time.Second
)

// ServingCA is what the apiserver verifies the webhook with (certs.Source).
type ServingCA interface {
	// CABundle is what to register now. While it is empty, nothing is written.
	CABundle() []byte
	// OnChange has notify called whenever CABundle is another.
	OnChange(notify func())
	// Registered is told which caBundles the apiserver has, and whether another replica has
	// written them, or an earlier leader.
	Registered(caBundles [][]byte, inherited bool)
}

// Config says what a Registrar needs. Client and ServingCA are required.
type Config struct {
	Spec

	Client    kubernetes.Interface
	ServingCA ServingCA
	// Responder is the one of this process. Nil takes any answer under the caBundle for
	// proof: behind a balancer the call may always come to another replica, because the
	// apiserver keeps its connections.
	Responder *ProbeResponder
	// Hosts is the reporter of this replica, whose watches say which hosts have one. With nil
	// no host is waited for, and neither is with a Spec that is not PerHost.
	Hosts *HostReporter
	// Recorder reports a deleted configuration and a failed proof. It may be nil.
	Recorder *events.Recorder
	// Changed is told each state that the registration comes to, in order. It must not
	// block. It may be nil.
	Changed func(State)
	Metrics *Metrics
	Loops   *reconcile.Metrics
	Clock   clock.WithTicker // nil means the real one
}

// Registrar follows both configurations, and keeps them right while it leads.
type Registrar struct {
	config  Config
	probeID string
	loop    *reconcile.Runner[string]
	writes  *rate.Limiter
	watched watched
	status  atomic.Pointer[Status]

	// mu is held while a step is taken, so that none is under way once Lead has returned.
	mu      sync.Mutex
	leading context.Context //nolint:containedctx // the term, in which the loop of Run takes steps; nil without one
	first   bool            // the next step is the first one of this term

	proven   proof  // nil before
	failed   int    // looks in a row
	reported string // the last failure that was reported
	hosts    hostChecker
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
	}
	r.loop = reconcile.New(reconcile.Config[string]{
		Name: queueName, Workers: 1, Sync: r.sync,
		Metrics: config.Loops, MaxBackoff: maxBackoff, Clock: config.Clock,
	})
	r.setStatus(Status{State: Idle})
	config.ServingCA.OnChange(func() { r.loop.AddIfRunning(Name) })
	return r
}

// Status is how far the registration is. While another replica leads, it is Idle.
func (r *Registrar) Status() Status { return *r.status.Load() }

func (r *Registrar) setStatus(status Status) {
	r.status.Store(&status)
	r.config.Metrics.state(status.State)
}

// Check is nil unless the registration is not what it should be by now; it is what
// readiness shows.
func (r *Registrar) Check() error { return r.Status().Check() }

// Run follows both configurations until ctx ends, on every replica: each has to know which
// caBundles kube-apiserver has. It is called once, and in mode none does nothing.
func (r *Registrar) Run(ctx context.Context) error {
	if r.config.Mode == None {
		return nil
	}
	client, ours := r.config.Client, reconcile.OnlyNamed(Name)
	mutatings := informers.NewFilteredMutatingWebhookConfigurationInformer(client, 0, cache.Indexers{}, ours)
	validatings := informers.NewFilteredValidatingWebhookConfigurationInformer(client, 0, cache.Indexers{}, ours)
	return r.loop.RunWatching(ctx, Name, r.watch(mutating, mutatings), r.watch(validating, validatings))
}

// Lead keeps both configurations right until ctx ends, while Run runs. It may be called again
// once it has returned, and then takes for granted what there is, not what was before.
func (r *Registrar) Lead(ctx context.Context) error {
	if r.config.Mode != None {
		r.term(ctx, Status{Starting, "reading " + Name})
		defer r.term(nil, Status{State: Idle}) //nolint:staticcheck // no context means no term
	}
	<-ctx.Done()
	return nil
}

// term begins or ends a term, between two steps.
func (r *Registrar) term(ctx context.Context, status Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched.forget()
	r.forgetHosts()
	r.leading, r.first = ctx, true
	r.setStatus(status)
	r.loop.AddIfRunning(Name)
}

// sync takes one step, and says what keeps it from the next one.
func (r *Registrar) sync(ctx context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.leading == nil {
		o := observation{last: r.watched.get()}
		r.config.ServingCA.Registered(o.caBundles(), true)
		r.setStatus(o.followed())
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(r.leading, stop)()
	after, err := r.step(ctx)
	if r.leading.Err() != nil {
		return nil // it was cut off
	}
	if err != nil {
		return r.fail(ctx, err)
	}
	r.failed, r.reported = 0, ""
	if after > 0 {
		r.loop.AddAfter(key, after)
	}
	return nil
}

// step does what is due now, and says after what time there may be more to do if nothing
// happens, zero for never. What it writes comes back through the watch.
func (r *Registrar) step(ctx context.Context) (time.Duration, error) {
	last := r.watched.get()
	now, caBundle := r.config.Clock.Now(), r.config.ServingCA.CABundle()
	o := observation{
		last: last, spec: r.config.Spec, caBundle: caBundle,
		proven: r.proven.covers(caBundle), hosts: r.checkHosts(now), probeID: r.probeID, now: now,
	}
	r.config.ServingCA.Registered(o.caBundles(), r.first)
	r.first = false
	decided := plan(o)
	r.show(ctx, decided.status)
	if decided.status.State == Off || decided.status.State == Deleted {
		r.forgetHosts() // nobody is missed where nobody is called
	} else {
		r.reportMissing(ctx, o.hosts, o.active(), now)
	}
	if err := r.prune(ctx, o.hosts.stale); err != nil {
		return 0, err
	}
	if decided.probe {
		return 0, r.probe(ctx, caBundle)
	}
	if o.proven {
		r.proven = newProof(caBundle)
	}
	return r.write(ctx, last, decided)
}
