// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics/legacyregistry"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/controllers/legacytokencleaner"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/serviceaccount"
	"sa-controller-manager/controllers/tokenreissue"
	"sa-controller-manager/controllers/tokensecret"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// phase says when a runnable starts; it then runs until the process stops.
type phase int

const (
	atOnce    phase = iota // kube-apiserver may need it in order to start
	connected              // once the API server answers
	synced                 // once the caches are filled too
	leading                // as synced, but only while this process leads
)

// runnable is a part that the process runs, or whose health it reports.
type runnable struct {
	// name is also the name of the health check.
	name  string
	phase phase
	// build sets run and check, or neither if the flags disable the part.
	build func(m *manager, r *runnable) error
	run   func(ctx context.Context) error
	// check is a check of /readyz. It returns at once, without a request.
	check func() (detail string, err error)
}

// runnables returns all parts of the process. They are built in this order: each one after those
// that it uses.
func runnables() []runnable {
	return []runnable{
		{name: "event-recorder", phase: atOnce, build: (*manager).buildRecorder},
		{name: "files", phase: atOnce, build: (*manager).buildFiles},
		{name: "client-certificate", phase: atOnce, build: (*manager).buildClientCertificate},
		{name: "permissions", phase: connected, build: (*manager).buildPermissions},
		{name: "caches", phase: connected, build: (*manager).buildCaches},
		{name: "watches", build: (*manager).buildWatches},
		{name: "key-store", build: (*manager).buildKeyStore},
		{name: "key-backends", phase: atOnce, build: (*manager).buildKeyBackends},
		{name: "signing-key", phase: synced, build: (*manager).buildKeyProbe},
		{name: "key-ring", phase: synced, build: (*manager).buildRingConsistency},
		{name: "published-files", phase: atOnce, build: (*manager).buildPublisher},
		{name: options.ServiceAccountController, phase: leading, build: (*manager).buildServiceAccounts},
		{name: options.LegacyServiceAccountTokenCleaner, phase: leading, build: (*manager).buildTokenCleaner},
		{name: "root-ca-overlap", phase: leading, build: (*manager).buildRootCAOverlap},
		{name: options.RootCACertificatePublisher, phase: leading, build: (*manager).buildRootCAPublisher},
		{name: options.ServiceAccountTokenController, phase: leading, build: (*manager).buildTokenController},
		{name: "token-reissue", phase: leading, build: (*manager).buildTokenReissue},
		{name: "key-rotation", phase: leading, build: (*manager).buildKeyRotation},
		{name: "webhook-certificate", phase: connected, build: (*manager).buildWebhook},
		{name: "webhook-registration", phase: leading, build: (*manager).buildRegistration},
		{name: "webhook-missed-pods", phase: leading, build: (*manager).buildPodScan},
		{name: "external-signer", build: (*manager).buildSigner},
	}
}

// build builds what the flags enable.
func (m *manager) build() error {
	for _, r := range runnables() {
		if err := r.build(m, &r); err != nil {
			return err
		}
		if r.run != nil || r.check != nil {
			m.runnables = append(m.runnables, r)
		}
	}
	return nil
}

func (m *manager) buildRecorder(r *runnable) error {
	r.run = m.recorder.Run
	return nil
}

func (m *manager) buildFiles(r *runnable) error {
	r.run = func(ctx context.Context) error {
		m.files.watch(ctx, func(stored *signing.Ring) { m.ringChanged(ctx, stored) }, m.ring, m.newRootCA)
		return nil
	}
	return nil
}

func (m *manager) buildPermissions(r *runnable) error {
	rules, err := permissions.Rules(m.options)
	if err != nil {
		return err
	}
	watcher := permissions.NewWatcher(m.clients.main, rules)
	r.run, r.check = watcher.Run, watcher.Status
	return nil
}

func (m *manager) buildCaches(r *runnable) error {
	r.run = func(ctx context.Context) error {
		m.informers.Start(ctx)
		<-ctx.Done()
		return nil
	}
	r.check = func() (string, error) { return "", m.cachesReady() }
	return nil
}

func (m *manager) buildWatches(r *runnable) error {
	r.check = func() (string, error) { return "", m.watches.Check() }
	return nil
}

func (m *manager) buildServiceAccounts(r *runnable) error {
	if !m.enabled.Enabled(r.name) {
		return nil
	}
	config := serviceaccount.Config{
		Client:    m.clients.main,
		Informers: m.informers,
		Names:     m.options.Tokens.ServiceAccounts,
		Loops:     m.loops,
	}
	if m.files.accounts != nil {
		config.Template = m.files.accounts.Get
	}
	m.accounts = serviceaccount.New(config)
	r.run = m.accounts.Run
	return nil
}

// buildTokenCleaner uses --token-secrets even if the token controller does not run here: it may run
// in another process.
func (m *manager) buildTokenCleaner(r *runnable) error {
	o := m.options
	if !m.enabled.Enabled(r.name) {
		return nil
	}
	if o.Cleaner.DryRun {
		m.logger.Info("Running the legacy token cleaner without changes because of --legacy-token-clean-up-dry-run")
	}
	r.run = legacytokencleaner.New(legacytokencleaner.Config{
		Client:    m.clients.main,
		Informers: m.informers,
		Recorder:  m.recorder,
		Metrics:   legacytokencleaner.NewMetrics(legacyregistry.MustRegister),
		Loops:     m.loops,
		Period:    o.Cleaner.Period,
		DryRun:    o.Cleaner.DryRun,
		Auto:      o.Tokens.TokenSecrets == options.TokenSecretsAuto,
	}).Run
	return nil
}

// buildRootCAOverlap builds the controller that decides which bundle the publisher and the token
// controller publish. It runs if one of the two does.
func (m *manager) buildRootCAOverlap(r *runnable) error {
	if bundle, _ := m.rootCA.Current(); bundle == nil || !m.enabled.Enabled(options.RootCACertificatePublisher) && !m.signsLegacyTokens() {
		return nil
	}
	m.rootCAMetrics = rootca.NewMetrics(legacyregistry.MustRegister)
	m.bundles = rootca.NewBundleController(rootca.BundleControllerConfig{
		Client:   m.clients.main,
		Source:   m.rootCA,
		Overlap:  m.options.RootCA.Overlap,
		Recorder: m.recorder,
		Process:  m.process,
		Loops:    m.loops,
	})
	r.run = m.bundles.Run
	return nil
}

func (m *manager) buildRootCAPublisher(r *runnable) error {
	if !m.enabled.Enabled(r.name) {
		return nil
	}
	if m.bundles == nil {
		m.logger.Info("Not publishing a root CA because neither --root-ca-file nor the kubeconfig has one")
		return nil
	}
	r.run = rootca.NewPublisher(rootca.PublisherConfig{
		Client:    m.clients.main,
		Informers: m.informers,
		Source:    m.rootCA,
		Recorder:  m.recorder,
		Metrics:   m.rootCAMetrics,
		Loops:     m.loops,
	}).Run
	return nil
}

func (m *manager) buildTokenController(r *runnable) error {
	o := m.options
	if !m.enabled.Enabled(r.name) {
		return nil
	}
	if m.files.store == nil {
		m.logger.Info("Not starting the token controller because neither --service-account-private-key-file nor --service-account-key-ring is set")
		return nil
	}
	auto := o.Tokens.TokenSecrets == options.TokenSecretsAuto
	if m.bundles == nil {
		m.logger.Info("Filling token Secrets without ca.crt because neither --root-ca-file nor the kubeconfig has a root CA")
	}
	controller := tokensecret.New(tokensecret.Config{
		Client:        m.clients.main,
		Informers:     m.informers,
		Issuer:        tokens.NewIssuer(signing.Guard{Signer: m.ring, May: m.mayFill}, tokens.ClaimStyle(o.Tokens.LegacyTokenClaims)),
		Keys:          m.ring,
		RootCA:        m.rootCA,
		Recorder:      m.recorder,
		Metrics:       tokensecret.NewMetrics(legacyregistry.MustRegister),
		RootCAMetrics: m.rootCAMetrics,
		Loops:         m.loops,
		Auto:          auto,
		AutoExcluded:  sets.New(o.AutoExcluded()...),
		OrphanGrace:   o.Tokens.OrphanTokenGrace,
		Workers:       int(o.Tokens.ConcurrentSyncs),
	})
	r.run = func(ctx context.Context) error {
		if auto {
			warning := autoWarning(o.AutoExcluded())
			m.logger.Info("Warning: " + warning)
			m.recorder.Warn(m.process, "TokenSecretsForEveryAccount", warning)
		}
		return controller.Run(ctx)
	}
	return nil
}

// autoWarning warns of a default that the user may not know of, and says how to turn it off.
func autoWarning(excluded []string) string {
	which := "every ServiceAccount"
	if len(excluded) > 0 {
		which += " outside of " + strings.Join(excluded, ", ")
	}
	return which + " gets a token Secret, and these tokens do not expire: a client that can read the Secrets of a namespace can act as its accounts. " +
		"--token-secrets=manual turns this off and keeps the existing Secrets"
}

// buildTokenReissue builds the controller that re-issues token Secrets after a rotation.
func (m *manager) buildTokenReissue(r *runnable) error {
	o := m.options
	if !m.rotates() {
		return nil
	}
	off := o.Reissue.TokenSecrets == options.ReissueOff
	if off {
		m.logger.Info("Not re-issuing token Secrets after a rotation because of --reissue-token-secrets=off")
	}
	m.reissuer = tokenreissue.New(tokenreissue.Config{
		Client:     m.clients.main,
		Informers:  m.informers,
		Ring:       m.ring,
		MayReissue: m.consistency.MayReissue,
		Confirmed:  m.activator.Confirmed,
		Recorder:   m.recorder,
		Metrics:    m.reissueMetrics,
		Loops:      m.loops,
		Off:        off,
		Auto:       o.Tokens.TokenSecrets == options.TokenSecretsAuto,
	})
	m.onRing = append(m.onRing, func(context.Context) { m.reissuer.RingChanged() })
	r.run = m.reissuer.Run
	return nil
}
