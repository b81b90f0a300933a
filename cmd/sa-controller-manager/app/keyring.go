// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"sa-controller-manager/signing"
)

// ringChanged is called with each new ring of the key store.
func (m *manager) ringChanged(ctx context.Context, stored *signing.Ring) {
	if m.ring == nil {
		return
	}
	previous := m.ring.Ring().ActiveID()
	m.ring.Set(stored)
	if id := m.ring.Ring().ActiveID(); id != previous {
		m.recorder.Normal(m.files.process, "SigningKeyActivated", "Activate", fmt.Sprintf("key %q signs from now on, as the key ring says", id))
	}
	m.activator.RingChanged(ctx)
	if m.reissuer != nil {
		m.agreement.RingChanged()
		m.reissuer.RingChanged()
	}
	m.showRing(ctx)
}

// showRing says which generation is in use, if the store counts them.
func (m *manager) showRing(ctx context.Context) {
	if ring := m.ring.Ring(); m.generation != nil {
		m.generation.Set(float64(ring.Generation()))
		klog.FromContext(ctx).Info("Took the keys of the ring", "generation", ring.Generation(), "signs", ring.ActiveID(), "status", m.files.store.Status().Detail)
	}
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
		Name:           "sacm_key_ring_generation",
		Help:           "Generation of the key ring file that is in use.",
		StabilityLevel: metrics.ALPHA,
	})
	legacyregistry.MustRegister(generation)
	return generation
}
