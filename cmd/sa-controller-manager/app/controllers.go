// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/controllers/legacytokencleaner"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/serviceaccount"
	"sa-controller-manager/controllers/tokencontroller"
	"sa-controller-manager/internal/accounttemplate"
	"sa-controller-manager/tokens"
)

// table returns the parts of the process. They are built in this order: each one after those that it uses, and the secure
// port last, because it serves the checks of all. The loops that follow the webhook's files and its registration have no
// rows: which of them there are, and in which phase, depends on its flags.
func (m *Manager) table() []Part {
	core := []Part{
		{Name: "event-recorder", Phase: AtOnce, Run: func(ctx context.Context) error { return m.Recorder.Run(ctx) }},
		{Name: "client-certificate", Phase: AtOnce, Build: m.buildClientCertificate},
		{Name: "permissions", Phase: Connected, Build: m.buildPermissions},
		{Name: "caches", Phase: Connected, Run: m.runCaches, Check: func() (string, error) { return "", m.synced(m.informers) }},
		{Name: "watches", Phase: Connected, Check: func() (string, error) { return "", m.watches.Check() }},
		{Name: "key-store", Phase: AtOnce, Build: m.buildKeyStore},
		{Name: "signing-key", Phase: Connected, Build: m.buildKeyProbe},
		{Name: options.ServiceAccountController, Phase: Leading, Build: m.buildServiceAccounts},
		{Name: options.LegacyServiceAccountTokenCleaner, Phase: Leading, Build: m.buildTokenCleaner},
		{Name: "root-ca-overlap", Phase: Leading, Build: m.buildRootCAOverlap},
		{Name: options.RootCACertificatePublisher, Phase: Leading, Build: m.buildRootCAPublisher},
		{Name: options.ClusterTrustBundlePublisher, Phase: Leading, Build: m.buildRootCAPublisher},
		{Name: options.ServiceAccountTokenController, Phase: Leading, Build: m.buildTokenController},
		{Name: "webhook-certificate", Phase: Connected, Build: m.buildWebhook},
		{Name: "admission-config", Phase: Connected, Build: m.buildAdmissionConfig},
		{Name: "webhook-registration", Phase: Leading, Build: m.buildRegistration},
		{Name: "webhook-policy", Phase: Connected, Build: m.buildPodPolicy},
	}
	if m.extras.Parts != nil {
		core = append(core, m.extras.Parts()...)
	}
	return append(core,
		Part{Name: "files", Phase: AtOnce, Build: m.buildFiles},
		Part{Name: "secure-port", Phase: AtOnce, Build: m.buildSecurePort},
		Part{Name: "secure-port-lookup", Phase: Connected, Run: func(ctx context.Context) error { return m.securePort.Lookup(ctx) }})
}

// build builds what the flags enable in the wanted phases.
func (m *Manager) build(wanted func(Phase) bool) error {
	for i := range m.rows {
		p := &m.rows[i]
		if !wanted(p.Phase) {
			continue
		}
		p.Host = m.Host
		if m.informers != nil {
			p.Informers = m.informers.View()
		}
		if p.Build != nil {
			if err := p.Build(p); err != nil {
				return err
			}
		}
		if p.Run != nil || p.Check != nil || p.Findings != nil {
			m.parts = append(m.parts, *p)
		}
	}
	return nil
}

func (m *Manager) buildPermissions(p *Part) error {
	rules, err := permissions.Rules(m.Options)
	if err != nil {
		return err
	}
	watcher := permissions.NewWatcher(m.Client, rules)
	p.Run, p.Findings = watcher.Run, watcher.Findings
	return nil
}

func (m *Manager) runCaches(ctx context.Context) error {
	m.informers.Start(ctx)
	<-ctx.Done()
	return nil
}

func (m *Manager) buildServiceAccounts(p *Part) error {
	if !m.Controllers.Enabled(p.Name) {
		return nil
	}
	config := serviceaccount.Config{
		Client:    m.Client,
		Informers: p.Informers,
		Names:     m.Options.Tokens.ServiceAccounts,
		Loops:     m.Loops,
	}
	if path := m.Options.Tokens.AccountTemplate; path != "" {
		file, err := Follow(m.Host, options.AccountTemplateFlag, path, accounttemplate.Parse)
		if err != nil {
			return err
		}
		config.Template = file.Get
	}
	m.accounts = serviceaccount.New(config)
	p.Run = m.accounts.Run
	return nil
}

// buildTokenCleaner uses --token-secrets even if the token controller does not run here: it may run
// in another process.
func (m *Manager) buildTokenCleaner(p *Part) error {
	o := m.Options
	if !m.Controllers.Enabled(p.Name) {
		return nil
	}
	if o.Cleaner.DryRun {
		m.Logger.Info("Running the legacy token cleaner without changes because of --legacy-token-clean-up-dry-run")
	}
	p.Run = legacytokencleaner.New(legacytokencleaner.Config{
		Client:    m.Client,
		Informers: p.Informers,
		Recorder:  m.Recorder,
		Metrics:   legacytokencleaner.NewMetrics(m.Registry.MustRegister),
		Loops:     m.Loops,
		Period:    o.Cleaner.Period,
		DryRun:    o.Cleaner.DryRun,
		Auto:      o.Tokens.TokenSecrets == options.TokenSecretsAuto,

		Replacements: m.extras.Replacements,
	}).Run
	return nil
}

// buildRootCAOverlap builds the controller that decides which bundle the two publishers and the token
// controller publish. It runs if one of the three does.
func (m *Manager) buildRootCAOverlap(p *Part) error {
	publishes := m.Controllers.Enabled(options.RootCACertificatePublisher) || m.Controllers.Enabled(options.ClusterTrustBundlePublisher)
	if bundle, _ := m.rootCA.Current(); bundle == nil || !publishes && !m.SignsLegacyTokens() {
		return nil
	}
	m.rootCAMetrics = rootca.NewMetrics(m.Registry.MustRegister)
	m.bundles = rootca.NewBundleController(rootca.BundleControllerConfig{
		Client:   m.Client,
		Source:   m.rootCA,
		Overlap:  m.Options.RootCA.Overlap,
		Recorder: m.Recorder,
		Process:  m.Process,
		Loops:    m.Loops,
	})
	p.Run, p.Check = m.bundles.Run, m.bundles.Check
	return nil
}

// buildRootCAPublisher builds the publisher of one of the two kinds of objects.
func (m *Manager) buildRootCAPublisher(p *Part) error {
	if !m.Controllers.Enabled(p.Name) {
		return nil
	}
	if m.bundles == nil {
		m.Logger.Info("Not publishing a root CA because neither --root-ca-file nor the kubeconfig has one", "controller", p.Name)
		return nil
	}
	config := rootca.PublisherConfig{
		Client:    m.Client,
		Informers: p.Informers,
		Source:    m.rootCA,
		Recorder:  m.Recorder,
		Metrics:   m.rootCAMetrics,
		Loops:     m.Loops,
	}
	if p.Name == options.RootCACertificatePublisher {
		p.Run = rootca.NewPublisher(config).Run
		return nil
	}
	publisher := rootca.NewTrustBundlePublisher(config)
	p.Run, p.Check = publisher.Run, publisher.Check
	return nil
}

func (m *Manager) buildTokenController(p *Part) error {
	o := m.Options
	if !m.Controllers.Enabled(p.Name) {
		return nil
	}
	if m.files.store == nil {
		m.Logger.Info("Not starting the token controller because neither --service-account-private-key-file " +
			"nor --service-account-key-ring is set")
		return nil
	}
	auto := o.Tokens.TokenSecrets == options.TokenSecretsAuto
	if m.bundles == nil {
		m.Logger.Info("Filling token Secrets without ca.crt because neither --root-ca-file nor the kubeconfig has a root CA")
	}
	controller := tokencontroller.New(tokencontroller.Config{
		Client:        m.Client,
		Metadata:      m.Metadata,
		Informers:     p.Informers,
		Issuer:        tokens.NewIssuer(m.Fills, o.Tokens.LegacyTokenClaims),
		Keys:          m.Keyring,
		RootCA:        m.rootCA,
		Recorder:      m.Recorder,
		Metrics:       tokencontroller.NewMetrics(m.Registry.MustRegister),
		RootCAMetrics: m.rootCAMetrics,
		Loops:         m.Loops,
		Auto:          auto,
		AutoExcluded:  sets.New(o.AutoExcluded()...),
		OrphanGrace:   o.Tokens.OrphanTokenGrace,
		Workers:       int(o.Tokens.ConcurrentSyncs),
	})
	p.Run = func(ctx context.Context) error {
		if auto {
			warning := autoWarning(o.AutoExcluded())
			m.Logger.Info("Warning: " + warning)
			m.Recorder.Warn(m.Process, "TokenSecretsForEveryAccount", warning)
		}
		return controller.Run(ctx)
	}
	return nil
}

// autoWarning warns of a default that the user may not know of, and says how to disable it.
func autoWarning(excluded []string) string {
	which := "every ServiceAccount"
	if len(excluded) > 0 {
		which += " outside of " + strings.Join(excluded, ", ")
	}
	return which + " gets a token Secret, and these tokens do not expire: a client that can read the Secrets of a namespace " +
		"can act as its accounts. --token-secrets=manual turns this off and keeps the existing Secrets"
}
