// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// serve issues a leaf if one is due and publishes leaf and caBundle.
func (m *Managed) serve(ctx context.Context) error {
	if m.held == nil {
		return nil
	}
	active := m.held.active
	if m.leaf == nil || !m.issuer.Equal(active.cert) || !m.config.Clock.Now().Before(twoThirds(m.leaf.Leaf)) {
		leaf, err := active.leaf(m.config.Clock.Now(), m.config.LeafLifetime, m.config.Hosts)
		if err != nil {
			return err
		}
		m.leaf, m.issuer = leaf, active.cert
		klog.FromContext(ctx).Info("Issued a serving certificate", "notAfter", leaf.Leaf.NotAfter, "issuer", m.issuer.Subject.CommonName)
	}
	m.set(&snapshot{serving: m.leaf, bundle: m.held.bundle(), caEnds: active.cert.NotAfter})
	return nil
}

// requeueAfter returns when to check again if nothing happens. A write that was due may have been
// lost or delayed, and nothing announces a change of the file.
func (m *Managed) requeueAfter(settled bool) time.Duration {
	if !settled || m.config.File != "" || m.held == nil || m.held.next != nil {
		return checkDuringChange
	}
	return checkAtRest
}
