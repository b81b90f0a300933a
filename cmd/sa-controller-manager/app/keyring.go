// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"sa-controller-manager/signing"
)

// openKeys reads the keys that sign, for whom the flags have sign.
func (m *manager) openKeys() error {
	var err error
	if m.files, err = openFiles(&m.options.Keys); err != nil {
		return err
	}
	if m.files.store != nil && (m.signsLegacyTokens() || m.options.ExternalSigner.Socket != "") {
		m.ring = signing.NewKeyring(m.files.store.Load(), m.files.publicKeys()...)
	}
	return nil
}

// buildKeyStore shows the keys that sign.
func (m *manager) buildKeyStore(r *runnable) error {
	if m.ring == nil {
		return nil
	}
	if generation := newRingGeneration(m.ring.Ring()); generation != nil {
		m.showRing(generation)
		m.onRing = append(m.onRing, func(context.Context) { m.showRing(generation) })
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
		m.recorder.Normal(m.process, "SigningKeyActivated", "Activate", fmt.Sprintf("key %q signs from now on, as the key ring says", id))
	}
	for _, changed := range m.onRing {
		changed(ctx)
	}
}

// showRing says which generation is in use.
func (m *manager) showRing(generation *metrics.Gauge) {
	ring := m.ring.Ring()
	generation.Set(float64(ring.Generation()))
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

// newRingGeneration is nil for a store that counts none.
func newRingGeneration(ring *signing.Ring) *metrics.Gauge {
	if ring.Generation() == 0 {
		return nil
	}
	generation := metrics.NewGauge(&metrics.GaugeOpts{
		Name: "sacm_key_ring_generation",
		Help: "Generation of the key ring file that is in use.",
	})
	legacyregistry.MustRegister(generation)
	return generation
}
