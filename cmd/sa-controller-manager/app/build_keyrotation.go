// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/tokenreissue"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/tokens"
)

// tokenReissue is what the leader runs besides the controllers of KCM.
const tokenReissue = "token-reissue"

// buildKeyRotation builds what follows from a rotation. A store that does not
// rotate has nothing to say of retired keys.
func (m *manager) buildKeyRotation(logger klog.Logger, loops *reconcile.Metrics) {
	if !m.files.keys.Rotates {
		return
	}
	o := m.options
	off := o.Reissue.TokenSecrets == options.ReissueOff
	if off {
		logger.Info("No token Secret is re-issued after a rotation, because of --reissue-token-secrets=off")
	}
	metrics := tokenreissue.NewMetrics(legacyregistry.MustRegister)
	m.agreement = tokenreissue.NewAgreement(tokenreissue.AgreementConfig{
		Informers: m.informers,
		Ring:      m.ring,
		Recorder:  m.recorder,
		Process:   process(&o.LeaderElection),
		Metrics:   metrics,
	})
	m.reissuer = tokenreissue.New(tokenreissue.Config{
		Client:    m.clients.main,
		Informers: m.informers,
		Ring:      m.ring,
		Confirmed: m.activator.Confirmed,
		Issuer:    tokens.NewIssuer(m.ring, tokens.ClaimStyle(o.Tokens.LegacyTokenClaims)),
		Recorder:  m.recorder,
		Metrics:   metrics,
		Loops:     loops,
		Off:       off,
		Auto:      o.Tokens.TokenSecrets == options.TokenSecretsAuto,
	})
	m.controllers = append(m.controllers, controller{tokenReissue, m.reissuer.Run})
}
