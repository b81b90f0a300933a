// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/keydir"
	"sa-controller-manager/signing/reload"
)

// openKeysDir reads a key directory; nil if path is empty.
func openKeysDir(path string) (*reload.File[*keydir.Snapshot], error) {
	if path == "" {
		return nil, nil
	}
	dir, err := keydir.At(path).Follow(reload.Options{})
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", options.KeysDirFlag, err)
	}
	return dir, nil
}

// sign tells whether there is a key to sign with.
func (f *files) sign() bool { return f.privateKey != nil || f.keysDir != nil }

// newRing is the key ring to begin with.
func (f *files) newRing() *signing.Keyring {
	if f.keysDir == nil {
		return signing.NewKeyring(f.privateKey.Get(), f.publicKeys()...)
	}
	return signing.KeyringOf(f.keysDir.Get().Ring(), f.publicKeys()...)
}

// followKeysDir brings every change of the key directory into the ring until ctx
// ends. A state that is refused leaves the ring as it is; trouble is told by an Event,
// a metric and /readyz, and once in the log.
func (m *manager) followKeysDir(ctx context.Context) {
	dir := m.files.keysDir
	if dir == nil || m.ring == nil {
		return
	}
	logger := klog.FromContext(ctx).WithValues("flag", "--"+options.KeysDirFlag, "file", dir.Path())
	generation := newRingGeneration(legacyregistry.MustRegister)
	show := func(snapshot *keydir.Snapshot) {
		generation.Set(float64(snapshot.State.Generation))
		logger.Info("Took the keys of the directory", "generation", snapshot.State.Generation, "phase", snapshot.State.Phase(), "signs", snapshot.Active.ID())
	}
	show(dir.Get())
	dir.Watch(ctx, func(snapshot *keydir.Snapshot) {
		m.files.metrics.reloads.WithLabelValues(options.KeysDirFlag, "accepted").Inc()
		previous := m.ring.Ring().ActiveID()
		m.ring.Set(snapshot.Ring())
		m.activator.RingChanged(ctx)
		m.ringChanged()
		show(snapshot)
		if id := snapshot.Active.ID(); id != previous {
			m.recorder.Normal(m.files.process, "SigningKeyActivated", "Activate", fmt.Sprintf("key %q signs from now on, as the key directory says", id))
		}
	}, func(err error) {
		m.files.metrics.reloads.WithLabelValues(options.KeysDirFlag, "refused").Inc()
		logger.Info("Refused the changed key directory, the former keys stay in use", "reason", err.Error())
		m.recorder.Warn(m.files.process, "FileReloadRefused", "Reload",
			fmt.Sprintf("--%s: %v; the former keys stay in use", options.KeysDirFlag, err))
	})
}

// keysDirProbe never fails: whatever the directory holds now, there are keys in use.
func (m *manager) keysDirProbe() (string, error) {
	state := m.files.keysDir.Get().State
	detail := fmt.Sprintf("generation %d", state.Generation)
	if state.InProgress() {
		detail += fmt.Sprintf(", a rotation to key %s is %s", state.Rotation.To, state.Phase())
	}
	if err := m.files.keysDir.Refused(); err != nil {
		detail += fmt.Sprintf("; refused: %v", err)
	}
	return detail, nil
}

func newRingGeneration(mustRegister func(...metrics.Registerable)) *metrics.Gauge {
	generation := metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "sacm_key_ring_generation",
		Help:           "Generation of the key directory's state that is in use.",
		StabilityLevel: metrics.ALPHA,
	})
	mustRegister(generation)
	return generation
}
