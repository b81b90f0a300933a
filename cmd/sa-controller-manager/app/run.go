// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics/legacyregistry"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/klog/v2"

	"sa-controller-manager/controllers/events"
	"sa-controller-manager/controllers/keyactivation"
	"sa-controller-manager/controllers/loop"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/serviceaccount"
	"sa-controller-manager/controllers/tokensecret"
	"sa-controller-manager/controllers/view"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// watchdogTimeout is how long the lease may be overdue before /livez fails, as in
// KCM (cmd/kube-controller-manager/app/controllermanager.go).
const watchdogTimeout = 20 * time.Second

// Run is the manager: it builds every part from o, runs them until ctx ends and
// returns when all have stopped. What is wrong with a flag's file or with an
// address is an error at once; an API server that does not answer is not.
func Run(ctx context.Context, o *Options) error {
	m, err := newManager(ctx, o)
	if err != nil {
		return err
	}
	return m.run(ctx)
}

// manager is the wired process. Its fields are what run needs.
type manager struct {
	options     *Options
	clients     clients
	view        *view.View
	recorder    *events.Recorder
	files       *files
	ring        *signing.Keyring // nil without a signing key
	rootCA      *rootca.Source
	activator   *keyactivation.Activator // nil without a signing key
	controllers []controller
	watchdog    *leaderelection.HealthzAdaptor
	server      *Server
}

// controller is one that only the leader runs.
type controller struct {
	name string
	run  func(context.Context) error
}

func newManager(ctx context.Context, o *Options) (*manager, error) {
	config, err := o.Connection.clientConfig()
	if err != nil {
		return nil, err
	}
	m := &manager{options: o, watchdog: leaderelection.NewLeaderHealthzAdaptor(watchdogTimeout)}
	if m.clients, err = newClients(config, o.LeaderElection.RenewDeadline.Duration); err != nil {
		return nil, err
	}
	if m.files, err = openFiles(&o.Keys, config); err != nil {
		return nil, err
	}
	bundle, err := m.files.bundle(config)
	if err != nil {
		return nil, err
	}
	m.rootCA = rootca.NewSource(bundle)
	m.view = view.New(m.clients.main, o.Generic.resync())
	m.recorder = events.NewRecorder(m.clients.main, programName)
	m.files.recorder, m.files.process = m.recorder, o.LeaderElection.process()
	m.files.metrics = newFileMetrics(legacyregistry.MustRegister)
	if err := m.buildControllers(ctx); err != nil {
		return nil, err
	}
	m.server, err = NewServer(o.SecureServing, m.liveChecks(), m.readyChecks())
	return m, err
}

// buildControllers builds the enabled controllers and what they need, and with
// that decides what will be watched.
func (m *manager) buildControllers(ctx context.Context) error {
	set, err := ParseControllers(m.options.Generic.Controllers)
	if err != nil {
		return fmt.Errorf("--controllers %w", err)
	}
	logger := klog.FromContext(ctx)
	if elsewhere := set.NotRun(); len(elsewhere) > 0 {
		logger.Info("Some controllers named by --controllers are not run by this program", "controllers", elsewhere)
	}
	loops := loop.NewMetrics(legacyregistry.MustRegister)
	if set.Enabled(ServiceAccountController) {
		accounts := serviceaccount.New(m.clients.main, m.view, m.options.Tokens.ServiceAccounts, loops)
		m.controllers = append(m.controllers, controller{ServiceAccountController, accounts.Run})
	}
	if !set.Enabled(ServiceAccountTokenController) {
		return nil
	}
	if m.files.privateKey == nil {
		logger.Info("The token controller does not run, because --service-account-private-key-file is not given")
		return nil
	}
	m.buildTokenController(logger, loops)
	return nil
}

func (m *manager) buildTokenController(logger klog.Logger, loops *loop.Metrics) {
	o := m.options
	m.ring = signing.NewKeyring(m.files.privateKey.Get(), m.files.publicKeys()...)
	m.activator = keyactivation.New(keyactivation.Config{
		Client:    m.clients.main,
		View:      m.view,
		Ring:      m.ring,
		Issuer:    o.Keys.Issuer(),
		Immediate: o.Keys.Activation == KeyActivationImmediate,
		Recorder:  m.recorder,
		Process:   o.LeaderElection.process(),
		Metrics:   keyactivation.NewMetrics(legacyregistry.MustRegister),
	})
	auto := o.Tokens.TokenSecrets == TokenSecretsAuto
	if auto {
		logger.Info("Every ServiceAccount gets a token Secret, and those tokens do not expire; --token-secrets=manual turns this off")
	}
	if m.rootCA.Current() == nil {
		logger.Info("Token Secrets get no ca.crt: neither --root-ca-file nor the kubeconfig gives a root CA")
	}
	legacy := tokensecret.New(tokensecret.Config{
		Client:      m.clients.main,
		View:        m.view,
		Issuer:      tokens.NewIssuer(m.ring, tokens.ClaimStyle(o.Tokens.LegacyTokenClaims)),
		Keys:        m.ring,
		RootCA:      m.rootCA,
		Recorder:    m.recorder,
		Metrics:     tokensecret.NewMetrics(legacyregistry.MustRegister),
		Loops:       loops,
		Auto:        auto,
		OrphanGrace: o.Tokens.OrphanTokenGrace,
		Workers:     int(o.Tokens.ConcurrentSyncs),
	})
	m.controllers = append(m.controllers, controller{ServiceAccountTokenController, legacy.Run})
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
	start(m.server.Run)
	start(m.recorder.Run)
	start(func(ctx context.Context) error {
		m.files.watch(ctx, func(key *signing.PrivateKey) { m.newKey(ctx, key) }, m.ring, m.rootCA)
		return nil
	})

	// A part that fails ends the controllers too.
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(support, cancel)()
	err := m.work(working, start)

	stop(err)
	if errors.Is(err, errLeaseLost) {
		return err // at once: see lead
	}
	running.Wait()
	m.view.Stop()
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
	start(func(support context.Context) error {
		m.view.Start(support)
		<-support.Done()
		return nil
	})
	if !m.view.Await(ctx) {
		return nil
	}
	if m.activator != nil {
		start(func(support context.Context) error { m.activator.Run(support); return nil })
	}
	if !m.options.LeaderElection.LeaderElect {
		return m.runControllers(ctx)
	}
	return m.options.LeaderElection.lead(ctx, m.clients.election, m.watchdog, m.runControllers)
}

// runControllers runs all controllers until ctx ends and every one has stopped.
func (m *manager) runControllers(ctx context.Context) error {
	controllersmetrics.Register()
	started := controllersmetrics.NewControllerManagerMetrics(programName)
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
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// newKey is called with the content of a changed private key file.
func (m *manager) newKey(ctx context.Context, key *signing.PrivateKey) {
	if m.activator != nil {
		m.activator.Offer(ctx, key)
	}
}

func (m *manager) liveChecks() []Check {
	return []Check{{Name: "leader-election", Probe: func() (string, error) { return "", m.watchdog.Check(nil) }}}
}

func (m *manager) readyChecks() []Check {
	checks := []Check{{Name: "caches", Probe: func() (string, error) {
		if missing := m.view.Missing(); len(missing) > 0 {
			return "", fmt.Errorf("not listed yet: %s", strings.Join(missing, ", "))
		}
		return "", nil
	}}}
	if m.activator != nil {
		checks = append(checks, Check{Name: "signing-key", Probe: func() (string, error) { return m.activator.Status(), nil }})
	}
	return append(checks, m.liveChecks()...)
}
