// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"cmp"
	"context"
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
	maxBackoff = 30 * time.Second

	// If another client reverts our writes, a few repairs are immediate and then there is one per
	// interval. The other client's version is in force meanwhile, so the interval is below the two
	// seconds that a user's edit may last.
	writeBurst    = 10
	writeInterval = time.Second
)

// ServingCA provides the caBundle with which the apiserver verifies the webhook (certs.Source).
type ServingCA interface {
	// CABundle returns the caBundle to register. While it is empty, nothing is written.
	CABundle() []byte
	// Subscribe has changed called whenever CABundle changes.
	Subscribe(changed func(caBundle []byte))
	// Registered receives the caBundles of the registered webhooks, and whether another replica or
	// an earlier leader has written them.
	Registered(caBundles [][]byte, inherited bool)
}

// Config configures a Registrar. Client and ServingCA are required.
type Config struct {
	Spec

	Client    kubernetes.Interface
	ServingCA ServingCA
	// Responder is the one of this process. If it is nil, an answer of any replica is a proof:
	// behind a load balancer the call may always reach another replica, because the apiserver
	// reuses its connections.
	Responder *ProbeResponder
	// Recorder records Events for a deleted configuration and a failed proof. It may be nil.
	Recorder *events.Recorder
	Metrics  *Metrics
	Loops    *reconcile.Metrics
	Clock    clock.WithTicker // nil means the real one
}

// Registrar watches both configurations, and reconciles them while it leads.
type Registrar struct {
	board

	config  Config
	loop    *reconcile.Runner[string]
	writes  *rate.Limiter
	watched [kinds]atomic.Pointer[last]

	// mu is held during a step, so that none is in progress once Lead has returned.
	mu      sync.Mutex
	leading context.Context //nolint:containedctx // the term in which Run's loop takes steps; nil if not leading
	first   bool            // the next step is the first one of this term

	proven   []byte // the caBundle; nil before, and from the end of a term, a switch-off or a removal on
	failed   int    // consecutive steps
	reported string // the last failure in an Event

	due    time.Time // when to prove again what is registered
	missed int       // how often that has failed, one after the other
	lost   *failure  // the last time
}

// New returns a Registrar that does not run yet. The spec must be valid, of mode url or service.
func New(config Config) *Registrar {
	config.Clock = cmp.Or[clock.WithTicker](config.Clock, clock.RealClock{})
	config.Metrics = cmp.Or(config.Metrics, NewMetrics(nil))
	r := &Registrar{
		board:  board{metrics: config.Metrics},
		config: config,
		writes: rate.NewLimiter(rate.Every(writeInterval), writeBurst),
	}
	r.loop = reconcile.New(reconcile.Config[string]{
		Name: "webhook_registration", Workers: 1, Sync: r.sync,
		Metrics: config.Loops, MaxBackoff: maxBackoff, Clock: config.Clock,
	})
	r.show(context.Background(), Status{State: Idle})
	config.ServingCA.Subscribe(func([]byte) { r.loop.AddIfRunning(Name) })
	return r
}

// Run watches both configurations until ctx ends, on every replica: each has to know which
// caBundles kube-apiserver has. It must be called once.
func (r *Registrar) Run(ctx context.Context) error {
	client, ours := r.config.Client, reconcile.OnlyNamed(Name)
	mutatings := informers.NewFilteredMutatingWebhookConfigurationInformer(client, 0, cache.Indexers{}, ours)
	validatings := informers.NewFilteredValidatingWebhookConfigurationInformer(client, 0, cache.Indexers{}, ours)
	return r.loop.RunWatching(ctx, Name, r.watch(mutating, mutatings), r.watch(validating, validatings))
}

// Lead reconciles both configurations until ctx ends, while Run runs. It may be called again once
// it has returned, and then starts from the current objects.
func (r *Registrar) Lead(ctx context.Context) error {
	r.term(ctx, ctx, Status{State: Starting, Detail: "reading " + Name})
	defer r.term(ctx, nil, Status{State: Idle}) // no context means no term
	<-ctx.Done()
	return nil
}

// term begins or ends a term, between two steps.
func (r *Registrar) term(ctx, leading context.Context, status Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leading, r.first = leading, true
	r.forget()
	r.show(ctx, status)
	r.loop.AddIfRunning(Name)
}

// forget drops the proof.
func (r *Registrar) forget() { r.proven, r.due, r.missed = nil, time.Time{}, 0 }

// sync takes one step and returns its error.
func (r *Registrar) sync(ctx context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.config.Clock.Now()
	o := observation{spec: r.config.Spec, caBundle: r.config.ServingCA.CABundle(), now: now}
	for k := range kinds {
		if seen := r.watched[k].Load(); seen != nil {
			o.last[k] = *seen
		}
	}
	if r.leading == nil {
		r.config.ServingCA.Registered(o.caBundles(), true)
		r.show(ctx, o.followed())
		return nil
	}
	term, stop := context.WithCancel(r.leading) // which has the fence of the leader's writes
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	after, err := r.step(term, o)
	if r.leading.Err() != nil {
		return nil // the end of the term interrupted it
	}
	if err != nil {
		return r.fail(term, err)
	}
	r.failed, r.reported = 0, ""
	if after > 0 {
		r.loop.AddAfter(key, after)
	}
	return nil
}

// step does what is due now, and returns when to check again if nothing happens, zero for never.
// Its writes come back through the watch.
func (r *Registrar) step(ctx context.Context, o observation) (time.Duration, error) {
	// What removes the webhooks may have been a switch-off and on again, in a moment that the watch has not shown.
	emptied := len(o.last[mutating].object.webhooks()) == 0
	if emptied || r.Status().State == Off {
		r.forget()
	}
	o.proven = r.missed == 0 && len(r.proven) > 0 && bytes.Equal(r.proven, o.caBundle)
	r.config.ServingCA.Registered(o.caBundles(), r.first)
	r.first = false
	decided := plan(o)
	switch {
	case decided.probe:
		if r.failed == 0 {
			r.show(ctx, decided.status)
		}
		return 0, r.bindOnceProved(ctx, o)
	case decided.status.State == Registered:
		r.proveAgain(ctx, o, &decided)
	}
	if r.failed == 0 || r.Status().State != decided.status.State { // the error of a failure that is being retried stays
		if r.show(ctx, decided.status) == Registered && (decided.status.State == Repairing || emptied && decided.status.State == Proving) {
			r.metrics.repairs.Inc()
		}
	}
	return r.write(ctx, o.last, decided)
}
