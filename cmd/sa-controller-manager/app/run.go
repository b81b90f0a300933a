// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	election "k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/klog/v2"

	podadmission "sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/preflight"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/serviceaccount"
	"sa-controller-manager/controllers/tokenreissue"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/leaderelection"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/serving"
	"sa-controller-manager/internal/watchhealth"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/external"
)

// Run is the manager: it builds every part from o, runs them until ctx ends and
// returns when all have stopped. What is wrong with a flag's file or with an
// address is an error at once; an API server that does not answer is not.
func Run(ctx context.Context, o *options.Options) error {
	boundMemory()
	m, err := newManager(ctx, o)
	if err != nil {
		return err
	}
	return m.run(ctx)
}

// manager is the wired process. Its fields are what run needs.
type manager struct {
	options      *options.Options
	clients      clients
	informers    *informers.Informers
	recorder     *events.Recorder
	loops        *reconcile.Metrics
	files        *files
	ring         *signing.Keyring // nil without a signing key
	generation   *metrics.Gauge   // nil without one, or if its store counts none
	rootCA       *rootca.Source
	rootCABundle *rootca.BundleController   // nil if no root CA is published
	caMetrics    *rootca.Metrics            // likewise
	activator    *keyprobe.Activator        // nil without a signing key
	agreement    *tokenreissue.Agreement    // nil if the key store does not rotate
	reissuer     *tokenreissue.Controller   // likewise
	accounts     *serviceaccount.Controller // nil if it is not enabled
	webhook      *webhook                   // nil if it is turned off
	podConfig    *podadmission.Config       // of the ServiceAccount plugin, nil if it is not enabled
	preflight    *preflight.Watcher
	controllers  []controller
	watchdog     *election.HealthzAdaptor
	freshness    *watchhealth.Tracker
	server       *serving.Server
	signer       *external.Server // nil if it is turned off
}

// webhookRegistration is what the leader runs besides the controllers of KCM.
const webhookRegistration = "webhook-registration"

// controller is one that only the leader runs.
type controller struct {
	name string
	run  func(context.Context) error
}

// run starts everything in the order in which one part needs another and stops it
// in the reverse order: controllers first, the health endpoints last.
func (m *manager) run(ctx context.Context) error {
	support, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	start := func(part func(context.Context) error) {
		running.Go(func() {
			if err := part(support); err != nil {
				stop(err)
			}
		})
	}
	// kube-apiserver may be waiting for it to start itself.
	if m.signer != nil {
		start(m.signer.Run)
	}
	start(m.server.Run)
	start(m.recorder.Run)
	start(func(ctx context.Context) error {
		m.files.watch(ctx, func(stored *signing.Ring) { m.ringChanged(ctx, stored) }, m.ring, m.newRootCA)
		return nil
	})

	// A part that fails ends the controllers too.
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

// work waits for the API server and then runs the controllers until ctx ends.
func (m *manager) work(ctx context.Context, start func(func(context.Context) error)) error {
	if !awaitAPIServer(ctx, m.clients.main) {
		return nil
	}
	start(func(support context.Context) error { m.preflight.Run(support); return nil })
	start(m.server.Lookup)
	start(func(support context.Context) error {
		m.informers.Start(support)
		<-support.Done()
		return nil
	})
	if m.webhook != nil {
		for _, follower := range m.webhook.followers {
			start(follower)
		}
	}
	if !m.informers.Await(ctx) {
		return nil
	}
	if m.activator != nil {
		start(m.activator.Run)
	}
	if m.agreement != nil {
		start(m.agreement.Run)
	}
	if !m.options.LeaderElection.LeaderElect {
		return m.runControllers(ctx)
	}
	return leaderelection.Run(ctx, leaderelection.Config{
		LeaderElectionConfiguration: m.options.LeaderElection.LeaderElectionConfiguration,

		Name: options.ProgramName, Client: m.clients.election, Watchdog: m.watchdog,
	}, m.runControllers)
}

// runControllers runs all controllers until ctx ends and every one has stopped. It may
// be called again after that.
func (m *manager) runControllers(ctx context.Context) error {
	controllersmetrics.Register()
	started := controllersmetrics.NewControllerManagerMetrics(options.ProgramName)
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running sync.WaitGroup
	for _, c := range m.controllers {
		running.Go(func() {
			logger := klog.FromContext(ctx).WithValues("controller", c.name)
			logger.Info("Controller starts")
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
