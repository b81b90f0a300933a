// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/x509"
	"time"

	"k8s.io/klog/v2"
)

// serve issues a leaf if one is due and publishes leaf and caBundle.
func (m *Managed) serve(ctx context.Context) error {
	if m.held == nil {
		return nil
	}
	if m.leafDue() {
		active := m.held.active
		leaf, err := active.leaf(m.config.Clock.Now(), m.config.LeafLifetime, m.config.Hosts)
		if err != nil {
			return err
		}
		m.leaf, m.issuer = leaf, active.cert
		klog.FromContext(ctx).Info("Issued a serving certificate", "notAfter", leaf.Leaf.NotAfter, "issuer", m.issuer.Subject.CommonName)
	}
	m.set(&snapshot{
		serving:  m.leaf,
		bundle:   m.held.bundle(m.issuer),
		notAfter: m.ends(),
	})
	return nil
}

// leafDue reports whether this process needs another leaf. A leaf of a CA that is no longer active
// stays in use until callers are known to have the active one, or it has to be renewed.
func (m *Managed) leafDue() bool {
	now, active := m.config.Clock.Now(), m.held.active.cert
	switch {
	case m.leaf == nil, !now.Before(m.leaf.Leaf.NotAfter):
		return true
	case !m.issuer.Equal(active) && m.known(active):
		return true
	default:
		longer := earlier(now.Add(m.config.LeafLifetime), active.NotAfter).After(m.leaf.Leaf.NotAfter)
		return longer && !now.Before(twoThirds(m.leaf.Leaf))
	}
}

// known reports whether callers have had a CA long enough to accept its leaves.
func (m *Managed) known(ca *x509.Certificate) bool {
	since, ok := m.registered.of(ca)
	return ok && m.config.Clock.Since(since) >= propagation
}

func (m *Managed) ends() map[string]time.Time {
	ends := map[string]time.Time{nameServing: m.leaf.Leaf.NotAfter, nameActiveCA: m.held.active.cert.NotAfter}
	if m.held.next != nil {
		ends[nameNextCA] = m.held.next.cert.NotAfter
	}
	if m.held.previous != nil {
		ends[namePreviousCA] = m.held.previous.NotAfter
	}
	return ends
}

// requeueAfter returns when to check again if nothing happens. A write that was due may have been
// lost or delayed.
func (m *Managed) requeueAfter(settled bool) time.Duration {
	// Nothing announces a change of the file.
	if !settled || m.config.File != "" ||
		m.held == nil || m.held.next != nil || !m.issuer.Equal(m.held.active.cert) {
		return checkDuringChange
	}
	due := earlier(twoThirds(m.leaf.Leaf), twoThirds(m.held.active.cert))
	return min(checkAtRest, max(due.Sub(m.config.Clock.Now()), checkDuringChange))
}
