// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/x509"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

// serve issues a leaf if one is due and publishes leaf and caBundle.
func (m *Managed) serve(ctx context.Context) error {
	if m.held == nil {
		return nil
	}
	m.track()
	if m.leafDue() {
		active := m.held.active
		leaf, err := active.leaf(m.config.Clock.Now(), m.config.LeafLifetime, m.config.Hosts)
		if err != nil {
			return err
		}
		if !active.cert.Equal(m.issuer) {
			m.lastIssuer = m.issuer
		}
		m.leaf, m.issuer = leaf, active.cert
		klog.FromContext(ctx).Info("Issued a serving certificate", "notAfter", leaf.Leaf.NotAfter, "issuer", m.issuer.Subject.CommonName)
	}
	m.set(&snapshot{
		serving:  m.leaf,
		bundle:   m.held.bundle(m.issuer, m.lingering()),
		notAfter: m.ends(),
	})
	return nil
}

// leafDue reports whether this process needs another leaf. A leaf of a CA that is no longer active
// stays in use until callers are sure to have the active one.
func (m *Managed) leafDue() bool {
	now, active := m.config.Clock.Now(), m.held.active.cert
	switch {
	case m.leaf == nil, !now.Before(m.leaf.Leaf.NotAfter):
		return true
	case active.Equal(m.promoted) && !m.held.has(m.issuer):
		return true // callers have the active one, and are about to lose the issuer
	case !m.issuer.Equal(active):
		// With a file, no other replica can have replaced the CA.
		return m.known(active) || m.config.File == "" && !now.Before(m.first[string(active.Raw)].Add(hold))
	default:
		longer := earlier(now.Add(m.config.LeafLifetime), active.NotAfter).After(m.leaf.Leaf.NotAfter)
		return longer && !now.Before(twoThirds(m.leaf.Leaf))
	}
}

// lingering returns the CA of the leaf before this one, for as long as other replicas may serve
// with a leaf of it: a replica that does not know what callers have changes after hold, and its
// watch may be late. Usually the Secret contains it, but it has room for one previous CA only.
func (m *Managed) lingering() *x509.Certificate {
	if !m.config.Clock.Now().Before(m.first[string(m.held.active.cert.Raw)].Add(hold + propagation)) {
		m.lastIssuer = nil
	}
	return m.lastIssuer
}

// known reports whether callers have had a CA long enough to accept its leaves.
func (m *Managed) known(ca *x509.Certificate) bool {
	since, ok := m.registered.of(ca)
	return ok && m.config.Clock.Since(since) >= propagation
}

// track records since when each CA has been in the caBundle of this process.
func (m *Managed) track() {
	maps.DeleteFunc(m.first, func(der string, _ time.Time) bool {
		return !slices.ContainsFunc(m.held.certificates(), func(ca *x509.Certificate) bool { return string(ca.Raw) == der })
	})
	for _, ca := range m.held.certificates() {
		if _, ok := m.first[string(ca.Raw)]; !ok {
			m.first[string(ca.Raw)] = m.config.Clock.Now()
		}
	}
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
		m.held == nil || m.held.next != nil || m.lastIssuer != nil || !m.issuer.Equal(m.held.active.cert) {
		return checkDuringChange
	}
	due := earlier(twoThirds(m.leaf.Leaf), twoThirds(m.held.active.cert))
	return min(checkAtRest, max(due.Sub(m.config.Clock.Now()), checkDuringChange))
}
