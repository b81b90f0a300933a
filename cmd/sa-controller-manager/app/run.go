// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the manager: Run builds every part from the options, runs them until its
// context ends, and stops them in order. Package commands reads the flags and calls it once,
// because Run registers metrics and opens ports for the whole process.
//
// It is the home of two rules. What runs: the table in controllers.go, to which Extras add rows. How long
// a stop takes, which is less than 10 s:
//
//	0 s  the webhook serves for --webhook-drain-delay (2 s) and then ends its calls (callsTimeout, 5 s);
//	     meanwhile the controllers end their syncs (reconcile.DrainTimeout, 5 s), and the Lease is released
//	7 s  all other parts end: watches that hang (reconcile.WatchStopTimeout, 2 s), the secure port
//	     (serving.DrainTimeout, 0.1 s)
//	9 s  the parts of the phase Early end; a call of the external signer that hangs takes 3 s more
//
// All this only as far as an API server or a client hangs; else the delay is nearly all.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/leaderelection"
	"sa-controller-manager/internal/reconcile"
)

// Run builds every part from o, runs them until ctx ends, and returns when all have stopped. An
// invalid file of a flag or an address in use is an error immediately. An API server that does not
// answer is retried and, if there are parts of the phase Early, so is an invalid kubeconfig.
func Run(ctx context.Context, o *options.Options, extras Extras) error {
	setGCPercent()
	registry, _ := legacyregistry.DefaultGatherer.(metrics.KubeRegistry) // what /metrics serves
	m, err := newManager(ctx, o, registry, extras)
	if err != nil {
		return err
	}
	return m.whileEarly(ctx, func(ctx context.Context) error {
		config, err := m.awaitKubeconfig(ctx)
		if err != nil || config == nil {
			return err
		}
		if err := m.wire(config); err != nil {
			return err
		}
		return m.run(ctx)
	})
}

// heapGrowth is how much the heap may grow between two collections, in percent of the live heap.
// It is half of Go's default, so that a flood of connections takes one and a half times the memory
// that it keeps in use, not twice. It costs few collections, because the process allocates little.
const heapGrowth = 50

// setGCPercent is called at the start of the process. It is a no-op if GOGC or GOMEMLIMIT is set.
func setGCPercent() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(heapGrowth)
	}
}

// callsTimeout limits calls of the webhook in progress after its drain delay.
const callsTimeout = 5 * time.Second

// run starts everything in the order of the phases and stops it in the reverse order:
// controllers first, the health endpoints last.
func (m *Manager) run(ctx context.Context) error {
	support, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	start := func(phase Phase) {
		for _, p := range m.of(phase) {
			running.Go(func() {
				if err := p.whenSynced(support); err != nil {
					stop(err)
				}
			})
		}
	}
	start(AtOnce)

	// A part that fails stops the controllers, too.
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(support, cancel)()
	// The webhook drains while the controllers do, and needs the informers until then.
	var serving sync.WaitGroup
	if m.webhook != nil {
		serving.Go(func() {
			if err := m.webhook.server.Run(working); err != nil {
				stop(err)
			}
		})
	}
	err := m.work(working, start)
	cancel()
	serving.Wait()
	stop(err)
	m.informers.Stop() // meanwhile the others stop
	running.Wait()
	if cause := context.Cause(support); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// of returns the parts that start in a phase.
func (m *Manager) of(phase Phase) []Part {
	return slices.DeleteFunc(slices.Clone(m.parts), func(p Part) bool { return p.Run == nil || p.Phase != phase })
}

// whileEarly runs the parts of the phase Early until work has returned. If one of them ends by itself,
// so does the process.
func (m *Manager) whileEarly(ctx context.Context, work func(context.Context) error) error {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	early := m.of(Early)
	ended := make(chan error, len(early))
	for _, p := range early {
		go func() {
			ended <- p.Run(running)
			cancel()
		}()
	}
	err := work(working)
	stop()
	var first error
	for range early {
		first = cmp.Or(first, <-ended)
	}
	return cmp.Or(first, err)
}

// whenSynced runs the part once the caches that it reads are filled. Those of others it does not wait for: one Secret that
// kube-apiserver cannot decrypt must not stop the accounts of new namespaces.
func (p *Part) whenSynced(ctx context.Context) error {
	if !p.Informers.Await(ctx) {
		return nil
	}
	return p.Run(ctx)
}

// work waits for the API server and then runs the controllers until ctx ends. A process that cannot list namespaces
// and accounts leaves the Lease to another one.
func (m *Manager) work(ctx context.Context, start func(Phase)) error {
	if !awaitAPIServer(ctx, m.Client) {
		return nil
	}
	start(Connected)
	if !m.informers.Await(ctx, informers.Namespaces, informers.Accounts) {
		return nil
	}
	if !m.Options.LeaderElection.LeaderElect {
		return m.lead(ctx)
	}
	return leaderelection.Run(ctx, leaderelection.Config{
		LeaderElectionConfiguration: m.Options.LeaderElection.LeaderElectionConfiguration,

		Name: options.ProgramName, Client: m.Election, Watchdog: m.watchdog,
	}, m.lead)
}

// lead runs the parts of a leader until ctx ends and all of them have stopped. It may be called
// again after that.
func (m *Manager) lead(ctx context.Context) error {
	controllersmetrics.Register()
	started := controllersmetrics.NewControllerManagerMetrics(options.ProgramName)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running sync.WaitGroup
	for _, c := range m.of(Leading) {
		running.Go(func() {
			logger := klog.FromContext(ctx).WithValues("controller", c.Name)
			if !c.Informers.Await(ctx) {
				return
			}
			logger.Info("Starting controller")
			started.ControllerStarted(c.Name)
			defer started.ControllerStopped(c.Name)
			if err := c.Run(klog.NewContext(ctx, logger)); err != nil {
				fail(fmt.Errorf("%s: %w", c.Name, err))
			}
		})
	}
	<-ctx.Done()
	running.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, reconcile.ErrAtOnce) {
		return cause
	}
	return nil
}
