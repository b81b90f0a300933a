// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"k8s.io/component-base/metrics/legacyregistry"

	"sa-controller-manager/admission/podscan"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// missedPods is what the leader runs to find Pods that the webhook was not called for.
const missedPods = "webhook-missed-pods"

// newMissedScanner is nil unless this process both gives Pods their accounts and
// registers the webhook: it would not know otherwise when to look, nor what for.
func (m *manager) newMissedScanner() *podscan.Scanner {
	if m.podConfig == nil || m.options.Webhook.Registration == options.RegistrationNone {
		return nil
	}
	return podscan.NewScanner(podscan.ScannerConfig{
		Finder:   podscan.Finder{Client: m.clients.main, Config: *m.podConfig},
		Process:  process(&m.options.LeaderElection),
		Recorder: m.recorder,
		Metrics:  podscan.NewMetrics(legacyregistry.MustRegister),
		Loops:    m.loops,
	})
}

// controllers are what of the webhook only the leader runs.
func (w *webhook) controllers() []controller {
	all := []controller{{webhookRegistration, w.registrar.Run}}
	if w.scanner != nil {
		all = append(all, controller{missedPods, w.scanner.Run})
	}
	return all
}
