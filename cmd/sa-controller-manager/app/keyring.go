// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/tokenreissue"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/remote"
)

// openKeys reads the keys that sign, for whom the flags have sign.
func (m *manager) openKeys() error {
	var err error
	if m.files, err = openFiles(&m.options.Keys, remote.NewMetrics(legacyregistry.MustRegister)); err != nil {
		return err
	}
	if m.files.store != nil && (m.signsLegacyTokens() || m.options.ExternalSigner.Socket != "" || len(m.options.Publishing.Destinations) > 0) {
		m.ring = signing.NewKeyring(m.files.store.Load(), m.files.publicKeys()...)
	}
	return nil
}

// buildKeyStore shows the keys that sign.
func (m *manager) buildKeyStore(r *runnable) error {
	if m.ring == nil {
		return nil
	}
	if m.ring.Ring().Generation() > 0 { // the store keeps a past
		m.registerRingMetrics()
		m.showRing()
		m.onRing = append(m.onRing, func(context.Context) { m.showRing() })
	}
	r.check = m.storeProbe
	return nil
}

// ringChanged is called with each new ring of the key store.
func (m *manager) ringChanged(ctx context.Context, stored *signing.Ring) {
	if m.ring == nil {
		return
	}
	previous := m.ring.Ring().ActiveID()
	m.ring.Set(stored)
	if id := m.ring.Ring().ActiveID(); id != previous {
		m.recorder.Normal(m.process, "SigningKeyActivated", fmt.Sprintf("key %q signs from now on, as the key ring says", id))
	}
	for _, changed := range m.onRing {
		changed(ctx)
	}
}

// showRing says which generation is in use.
func (m *manager) showRing() {
	ring := m.ring.Ring()
	m.logger.Info("Took the keys of the ring", "generation", ring.Generation(), "signs", ring.ActiveID(), "status", m.files.store.Status().Detail)
}

// storeProbe never fails: whatever the key store holds now, there are keys in use.
func (m *manager) storeProbe() (string, error) {
	status := m.files.store.Status()
	switch {
	case status.Refused == nil:
		return status.Detail, nil
	case status.Detail == "":
		return fmt.Sprintf("refused: %v", status.Refused), nil
	}
	return fmt.Sprintf("%s; refused: %v", status.Detail, status.Refused), nil
}

func (m *manager) registerRingMetrics() {
	legacyregistry.RawMustRegister(
		metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Name: "sacm_key_ring_generation",
			Help: "Generation of the key ring file that is in use.",
		}, func() float64 { return float64(m.ring.Ring().Generation()) }),
		metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Name: "sacm_signing_key_activated_timestamp_seconds",
			Help: "When the active key of the key ring file became active, in seconds since 1970.",
		}, func() float64 { return float64(m.ring.Ring().Past().ActivatedAt.Unix()) }),
	)
}

func (m *manager) buildKeyProbe(r *runnable) error {
	o := m.options
	if m.ring == nil {
		return nil
	}
	m.activator = keyprobe.New(keyprobe.Config{
		Client:    m.clients.main,
		Informers: m.informers,
		Ring:      m.ring,
		Issuer:    o.Keys.Issuer(),
		Kept:      m.keptForSigner(),
		Proven: func() {
			if m.reissuer != nil {
				m.reissuer.RingChanged()
			}
		},
		Recorder: m.recorder,
		Process:  m.process,
		Metrics:  keyprobe.NewMetrics(legacyregistry.MustRegister),
		Loops:    m.loops,
	})
	m.onRing = append(m.onRing, m.activator.RingChanged)
	r.run = m.activator.Run
	r.check = func() (string, error) { return m.activator.Status(), nil }
	return nil
}

// rotates reports whether keys of the token controller can be retired.
func (m *manager) rotates() bool {
	return m.signsLegacyTokens() && m.files.keys.Rotates
}

// signsLegacyTokens reports whether the token controller runs.
func (m *manager) signsLegacyTokens() bool {
	return m.enabled.Enabled(options.ServiceAccountTokenController) && m.files.store != nil
}

func (m *manager) buildRingConsistency(r *runnable) error {
	if m.ring == nil {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the name of this host: %w", err)
	}
	m.reissueMetrics = tokenreissue.NewMetrics(legacyregistry.MustRegister)
	m.consistency = tokenreissue.NewRingConsistency(tokenreissue.RingConsistencyConfig{
		Client:    m.clients.main,
		Informers: m.informers,
		Ring:      m.ring,
		Host:      host,
		Signer:    m.options.ExternalSigner.Socket != "",
		Recorder:  m.recorder,
		Process:   m.process,
		Metrics:   m.reissueMetrics,
		Loops:     m.loops,
	})
	m.onRing = append(m.onRing, func(context.Context) { m.consistency.RingChanged() })
	r.run = m.consistency.Run
	r.check = func() (string, error) { return m.consistency.Status(), nil }
	legacyregistry.RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name: "sacm_signing_key_blocked",
		Help: "1 while token Secrets are not filled because kube-apiserver refused the active key or a newer key ring is published, else 0.",
	}, func() float64 {
		if m.mayFill() != nil {
			return 1
		}
		return 0
	}))
	return nil
}

// maySign returns why the active key must not sign, or nil. mayFill is the stricter rule for the
// tokens of Secrets, which do not expire.
func (m *manager) maySign() error { return cmp.Or(m.activator.MaySign(), m.consistency.MaySign()) }

func (m *manager) mayFill() error { return cmp.Or(m.activator.MaySign(), m.consistency.MayFill()) }
