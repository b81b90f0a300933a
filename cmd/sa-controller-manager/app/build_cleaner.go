// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/legacytokencleaner"
	"sa-controller-manager/internal/reconcile"
)

// buildTokenCleaner goes by the flag --token-secrets alone, and not by whether the
// token controller runs here: it may run in another process.
func (m *manager) buildTokenCleaner(logger klog.Logger, loops *reconcile.Metrics) {
	o := m.options
	if o.Cleaner.DryRun {
		logger.Info("The legacy token cleaner only tells what it would do, because of --legacy-token-clean-up-dry-run")
	}
	cleaner := legacytokencleaner.New(legacytokencleaner.Config{
		Client:    m.clients.main,
		Informers: m.informers,
		Recorder:  m.recorder,
		Metrics:   legacytokencleaner.NewMetrics(legacyregistry.MustRegister),
		Loops:     loops,
		Period:    o.Cleaner.Period,
		DryRun:    o.Cleaner.DryRun,
		Auto:      o.Tokens.TokenSecrets == options.TokenSecretsAuto,

		ReplacedPeriod: o.Reissue.IdlePeriod,
	})
	m.controllers = append(m.controllers, controller{options.LegacyServiceAccountTokenCleaner, cleaner.Run})
}
