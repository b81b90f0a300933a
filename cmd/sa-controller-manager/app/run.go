// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app is the manager: Run builds every part from the options, runs them until its
// context ends, and stops them in order. Package commands reads the flags and calls it once,
// because Run registers metrics and opens ports for the whole process.
package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"

	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/leaderelection"
	"sa-controller-manager/internal/reconcile"
)

// Run builds every part from o, runs them until ctx ends, and returns when all have stopped. An
// invalid file of a flag or an address in use is an error at once. An API server that does not
// answer is retried and, if the external signer is served, so is an invalid kubeconfig.
func Run(ctx context.Context, o *options.Options) error {
	setGCPercent()
	m, err := newManager(ctx, o)
	if err != nil {
		return err
	}
	return m.whileSigning(ctx, func(ctx context.Context) error {
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

// run starts everything in the order of the phases and stops it in the reverse order:
// controllers first, the health endpoints last.
func (m *manager) run(ctx context.Context) error {
	support, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	start := func(p phase) {
		for _, r := range m.of(p) {
			running.Go(func() {
				if err := r.run(support); err != nil {
					stop(err)
				}
			})
		}
	}
	start(atOnce)

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
	running.Wait()
	m.informers.Stop()
	if cause := context.Cause(support); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// of returns the parts that start in a phase.
func (m *manager) of(p phase) []runnable {
	var all []runnable
	for _, r := range m.runnables {
		if r.run != nil && r.phase == p {
			all = append(all, r)
		}
	}
	return all
}

// work waits for the API server and then runs the controllers until ctx ends.
func (m *manager) work(ctx context.Context, start func(phase)) error {
	if !awaitAPIServer(ctx, m.clients.main) {
		return nil
	}
	start(connected)
	if !m.informers.Await(ctx) {
		return nil
	}
	start(synced)
	if !m.options.LeaderElection.LeaderElect {
		return m.lead(ctx)
	}
	return leaderelection.Run(ctx, leaderelection.Config{
		LeaderElectionConfiguration: m.options.LeaderElection.LeaderElectionConfiguration,

		Name: options.ProgramName, Client: m.clients.election, Watcher: m.clients.main, Watchdog: m.watchdog,
	}, m.lead)
}

// lead runs the parts of a leader until ctx ends and all of them have stopped. It may be called
// again after that.
func (m *manager) lead(ctx context.Context) error {
	controllersmetrics.Register()
	started := controllersmetrics.NewControllerManagerMetrics(options.ProgramName)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running sync.WaitGroup
	for _, c := range m.of(leading) {
		running.Go(func() {
			logger := klog.FromContext(ctx).WithValues("controller", c.name)
			logger.Info("Starting controller")
			started.ControllerStarted(c.name)
			defer started.ControllerStopped(c.name)
			if err := c.run(klog.NewContext(ctx, logger)); err != nil {
				fail(fmt.Errorf("%s: %w", c.name, err))
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
