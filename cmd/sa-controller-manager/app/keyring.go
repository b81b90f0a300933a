// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"strings"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/internal/series"
	"sa-controller-manager/signing"
)

// openKeys reads the keys that sign, if something uses them.
func (m *Manager) openKeys(ctx context.Context) error {
	o := &m.Options.Keys
	m.files = &files{keys: o.Store()}
	if m.extras.OpenKeys != nil {
		var err error
		if m.files.store, err = m.extras.OpenKeys(ctx, m.Host); err != nil {
			return err
		}
	}
	if err := m.files.open(o); err != nil {
		return err
	}
	if m.files.store != nil && (m.SignsLegacyTokens() || m.extras.UsesKeys) {
		m.Keyring = signing.NewKeyring(m.files.store.Load(), m.VerifyOnly()...)
		m.Signs, m.Fills = &signing.Guard{Signer: m.Keyring}, &signing.Guard{Signer: m.Keyring}
	}
	return nil
}

// buildKeyStore shows the keys that sign, and records when another one does. Its check never fails: whatever the key store holds now,
// there are keys in use.
func (m *Manager) buildKeyStore(p *Part) error {
	if m.Keyring == nil {
		return nil
	}
	p.Check = func() (string, error) {
		status := m.files.store.Status()
		if status.Refused == nil {
			return status.Detail, nil
		}
		return strings.TrimPrefix(fmt.Sprintf("%s; refused: %v", status.Detail, status.Refused), "; "), nil
	}
	signs := m.Keyring.Ring().ActiveID()
	m.Keyring.Changed.Subscribe(func(ring *signing.Ring) {
		if id := ring.ActiveID(); id != signs && id != "" {
			m.Recorder.Normal(m.Process, "SigningKeyActivated", fmt.Sprintf("key %q signs from now on, as the key ring says", id))
		}
		signs = ring.ActiveID()
	})
	return nil
}

func (m *Manager) buildKeyProbe(p *Part) error {
	if m.Keyring == nil {
		return nil
	}
	m.Probe = keyprobe.New(keyprobe.Config{
		Client:    m.Client,
		Informers: p.Informers,
		Ring:      m.Keyring,
		Issuer:    m.Options.Keys.Issuer(),
		Recorder:  m.Recorder,
		Process:   m.Process,
		Metrics:   keyprobe.NewMetrics(m.Registry.MustRegister),
		Loops:     m.Loops,
	})
	m.watches.Connected.Subscribe(func(string) { m.Probe.Reconnected() })
	m.Signs.Add(m.Probe.MaySign)
	m.Fills.Add(m.Probe.MayFill)
	series.GaugeFunc(m.Registry, "sacm_signing_key_blocked",
		"1 while token Secrets are not filled because kube-apiserver refused the active key or a newer key ring is published, else 0.",
		func() float64 { return series.Bool(m.Fills.May() != nil) })
	p.Run = m.Probe.Run
	p.Findings = m.Probe.Findings
	return nil
}
