// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/serviceaccount"
	"sa-controller-manager/controllers/tokensecret"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/leaderelection"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/serving"
	"sa-controller-manager/internal/watchhealth"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

func newManager(ctx context.Context, o *options.Options) (*manager, error) {
	config, err := cli.ClientConfig(&o.Connection)
	if err != nil {
		return nil, err
	}
	m := &manager{options: o, watchdog: leaderelection.NewWatchdog()}
	m.freshness = watchhealth.New(clock.RealClock{}, watchhealth.Limit)
	config.Wrap(m.freshness.Wrap)
	config.Wrap(leaderelection.FenceWrites)
	if m.clients, err = newClients(config, o.LeaderElection.RenewDeadline.Duration); err != nil {
		return nil, err
	}
	if o.Connection.UseServiceAccountCredentials {
		if err := m.clients.useAccounts(config); err != nil {
			return nil, err
		}
	}
	if m.files, err = openFiles(&o.Keys, config); err != nil {
		return nil, err
	}
	bundle, err := m.files.bundle(config)
	if err != nil {
		return nil, err
	}
	m.rootCA = rootca.NewSource(bundle)
	m.informers = informers.New(m.clients.main, resync(&o.Generic))
	m.recorder = events.NewRecorder(m.clients.main, options.ProgramName)
	m.loops = reconcile.NewMetrics(legacyregistry.MustRegister)
	m.files.recorder, m.files.process = m.recorder, process(&o.LeaderElection)
	m.files.metrics = newFileMetrics(legacyregistry.MustRegister)
	for _, gauge := range m.files.refusedGauges() {
		legacyregistry.RawMustRegister(gauge)
	}
	if err := m.buildControllers(ctx); err != nil {
		return nil, err
	}
	if m.webhook, err = m.buildWebhook(); err != nil {
		return nil, err
	}
	if m.webhook != nil {
		m.controllers = append(m.controllers, m.webhook.controllers()...)
	}
	if err := m.buildPreflight(); err != nil {
		return nil, err
	}
	if m.server, err = serving.New(klog.FromContext(ctx), m.servingConfig()); err != nil {
		return nil, err
	}
	m.signer, err = listenAsSigner(o, m.ring)
	return m, err
}

// buildControllers builds the enabled controllers and what they need, and with
// that decides what will be watched.
func (m *manager) buildControllers(ctx context.Context) error {
	set, err := options.ParseControllers(m.options.Generic.Controllers)
	if err != nil {
		return fmt.Errorf("--controllers %w", err)
	}
	logger := klog.FromContext(ctx)
	if elsewhere := set.NotRun(); len(elsewhere) > 0 {
		logger.Info("Some controllers named by --controllers are not run by this program", "controllers", elsewhere)
	}
	loops := m.loops
	if set.Enabled(options.ServiceAccountController) {
		m.accounts = serviceaccount.New(serviceaccount.Config{
			Client:    m.clients.of(options.ServiceAccountController),
			Informers: m.informers,
			Names:     m.options.Tokens.ServiceAccounts,
			Loops:     loops,
		})
		m.controllers = append(m.controllers, controller{options.ServiceAccountController, m.accounts.Run})
	}
	if set.Enabled(options.LegacyServiceAccountTokenCleaner) {
		m.buildTokenCleaner(logger, loops)
	}
	m.buildRootCA(set, logger, loops)
	legacy := set.Enabled(options.ServiceAccountTokenController)
	if m.files.store == nil {
		if legacy {
			logger.Info("The token controller does not run, because neither --service-account-private-key-file nor --service-account-key-ring is given")
		}
		return nil
	}
	if legacy || m.options.ExternalSigner.Socket != "" {
		m.buildRing(ctx)
	}
	if legacy {
		m.buildTokenController(logger, loops)
	}
	return nil
}

// buildRing builds the keys that sign, for whoever asks, and what proves them.
func (m *manager) buildRing(ctx context.Context) {
	o := m.options
	m.ring = signing.KeyringOf(m.files.store.Load(), m.files.publicKeys()...)
	m.generation = newRingGeneration(m.ring.Ring())
	m.showRing(ctx)
	m.activator = keyprobe.New(keyprobe.Config{
		Client:    m.clients.main,
		Informers: m.informers,
		Ring:      m.ring,
		Issuer:    o.Keys.Issuer(),
		Immediate: o.Keys.Activation == options.KeyActivationImmediate,
		Kept:      m.keptForSigner(),
		Recorder:  m.recorder,
		Process:   process(&o.LeaderElection),
		Metrics:   keyprobe.NewMetrics(legacyregistry.MustRegister),
		Loops:     m.loops,
	})
}

func (m *manager) buildTokenController(logger klog.Logger, loops *reconcile.Metrics) {
	o := m.options
	auto := o.Tokens.TokenSecrets == options.TokenSecretsAuto
	if auto {
		logger.Info("Every ServiceAccount gets a token Secret, and those tokens do not expire; --token-secrets=manual turns this off")
	}
	if m.rootCA.Current() == nil {
		logger.Info("Token Secrets get no ca.crt: neither --root-ca-file nor the kubeconfig gives a root CA")
	}
	legacy := tokensecret.New(tokensecret.Config{
		Client:        m.clients.main,
		Informers:     m.informers,
		Issuer:        tokens.NewIssuer(m.ring, tokens.ClaimStyle(o.Tokens.LegacyTokenClaims)),
		Keys:          m.ring,
		RootCA:        m.rootCA,
		Recorder:      m.recorder,
		Metrics:       tokensecret.NewMetrics(legacyregistry.MustRegister),
		RootCAMetrics: m.caMetrics,
		Loops:         loops,
		Auto:          auto,
		OrphanGrace:   o.Tokens.OrphanTokenGrace,
		Workers:       int(o.Tokens.ConcurrentSyncs),
	})
	m.controllers = append(m.controllers, controller{options.ServiceAccountTokenController, legacy.Run})
	m.buildKeyRotation(logger, loops)
}
