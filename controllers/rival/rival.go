// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rival notices a second token controller at work: mostly the one of
// kube-controller-manager, which --controllers cannot turn off.
//
// Two with different keys make it a lottery which key signs a Secret's token, and two with
// different root CAs undo each other's writes for ever. A Detector sees their work in the
// watch of token Secrets, and sends no request but an Event. It looks at changes only: it
// cannot see a rival that has nothing to do, nor one that agrees in all.
//
// Lifecycle: it runs on the leader, beside the token controller. What it believes ends a
// while after the last sign, and with the lead.
//
// Concurrency: all methods may be called from any goroutine.
//
// What must never happen: that a replica of ours, a user or a kube-controller-manager that
// has handed over is taken for a rival; that readiness fails for one, because the webhook
// would go down with it.
package rival

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/signing"
)

const (
	// settling is how long after the beginning nothing counts: the last writes of who
	// has just handed over may still be on their way through the watch.
	settling = 5 * time.Second

	// quiet is how long after the last sign a rival is believed in: as long as
	// kube-apiserver keeps the Event by default.
	quiet = time.Hour

	// strangersSigns is how many signs of one who is not known to be a token controller
	// are believed.
	strangersSigns = 3

	// maxSigns bounds the memory: managedFields can name anybody. It does not count against
	// kube-controller-manager, which has one of each act.
	maxSigns = 1000

	// shownSigns and shownManager bound what is told, in number and length.
	shownSigns   = 3
	shownManager = 64
)

// Mend says how to end it.
const Mend = "start kube-controller-manager with an empty --service-account-private-key-file=; " +
	"--controllers=-serviceaccount-token-controller does not turn its token controller off"

// Config is what a Detector needs. Clock may be nil.
type Config struct {
	View     *informers.View
	Keys     signing.KeySource
	RootCA   *rootca.Source
	Recorder *events.Recorder
	// Process is what Events are about.
	Process *corev1.ObjectReference
	Metrics *Metrics
	Clock   clock.Clock
}

// Detector looks for a second token controller. Build it with New before the view is
// started.
type Detector struct {
	Config

	informer cache.SharedIndexInformer
	evidence evidence
	believed chan struct{} // something is believed, anew or once more
}

// New builds a Detector that does not run yet.
func New(config Config) *Detector {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	d := &Detector{Config: config, believed: make(chan struct{}, 1)}
	_, d.informer = config.View.TokenSecrets()
	return d
}

// Run looks until ctx ends. It may be called again once it has returned.
func (d *Detector) Run(ctx context.Context) error {
	d.evidence.begin(d.Clock.Now())
	defer d.evidence.end()
	select {
	case <-d.believed: // of a former lead
	default:
	}
	handler, err := d.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(before, after any) {
		d.observe(ctx, before.(*tokensecrets.TokenSecret), after.(*tokensecrets.TokenSecret))
	}})
	if err != nil {
		return fmt.Errorf("watch token secrets: %w", err)
	}
	d.show(ctx)
	return d.informer.RemoveEventHandler(handler)
}

// show keeps the metric right until ctx ends.
func (d *Detector) show(ctx context.Context) {
	d.Metrics.seen.Set(0)
	defer d.Metrics.seen.Set(0)
	over := d.Clock.NewTimer(quiet)
	defer over.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.believed:
			d.Metrics.seen.Set(1)
			over.Reset(quiet)
		case <-over.C():
			d.Metrics.seen.Set(0)
		}
	}
}

// Status says what is believed now, "" if nothing is.
func (d *Detector) Status() string { return d.evidence.status(d.Clock.Now()) }

func (d *Detector) observe(ctx context.Context, before, after *tokensecrets.TokenSecret) {
	s := judge(before, after, d.RootCA.Current(), d.Keys.Keys())
	if s.act == nothing {
		return
	}
	believed, isNew := d.evidence.note(s, d.Clock.Now())
	if isNew {
		klog.FromContext(ctx).Info("A second token controller is at work", "manager", s.manager, "does", s.act, "secret", klog.KObj(after), "mend", Mend)
	}
	if believed {
		select {
		case d.believed <- struct{}{}:
		default: // it is about to be shown
		}
		d.Recorder.Warn(d.Process, "SecondTokenController", "Watch", s.says()+": "+Mend)
	}
}
