// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/reconcile"
)

// rootCAOverlap is what the leader runs besides the controllers of KCM wherever a root
// CA is published, be it in token Secrets alone.
const rootCAOverlap = "root-ca-overlap"

// buildRootCA builds the publisher of kube-root-ca.crt, and what decides which bundle
// it and the token controller publish.
func (m *manager) buildRootCA(set options.ControllerSet, logger klog.Logger, loops *reconcile.Metrics) {
	publishes := set.Enabled(options.RootCACertificatePublisher)
	bundle := m.rootCA.Current()
	if bundle == nil {
		if publishes {
			logger.Info("The root CA is not published: neither --root-ca-file nor the kubeconfig gives one")
		}
		return
	}
	if !publishes && !m.signs(set) {
		return
	}
	m.caMetrics = rootca.NewMetrics(legacyregistry.MustRegister)
	m.rootCABundle = rootca.NewBundleController(rootca.BundleControllerConfig{
		Client:   m.clients.main,
		Source:   m.rootCA,
		File:     bundle,
		Overlap:  m.options.RootCA.Overlap,
		Recorder: m.recorder,
		Process:  process(&m.options.LeaderElection),
		Loops:    loops,
	})
	m.controllers = append(m.controllers, controller{rootCAOverlap, m.rootCABundle.Run})
	if !publishes {
		return
	}
	publisher := rootca.NewPublisher(rootca.PublisherConfig{
		Client:    m.clients.of(options.RootCACertificatePublisher),
		Informers: m.informers,
		Source:    m.rootCA,
		Recorder:  m.recorder,
		Metrics:   m.caMetrics,
		Loops:     loops,
	})
	m.controllers = append(m.controllers, controller{options.RootCACertificatePublisher, publisher.Run})
}

// signs tells whether the token controller runs.
func (m *manager) signs(set options.ControllerSet) bool {
	return set.Enabled(options.ServiceAccountTokenController) && m.files.store != nil
}

// newRootCA is called with the content of a changed root CA file.
func (m *manager) newRootCA(bundle *rootca.Bundle) {
	if m.rootCABundle != nil {
		m.rootCABundle.Set(bundle)
	}
}
