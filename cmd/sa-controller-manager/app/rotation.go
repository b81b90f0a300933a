// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/keyrotation"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/ringfile"
)

// buildKeyRotation builds the controller that rotates keys by policy.
func (m *manager) buildKeyRotation(r *runnable) error {
	o := m.options
	if o.Rotation.Every == 0 {
		return nil
	}
	ring := ringfile.At(o.Keys.KeyRing)
	if err := ring.CheckWritable(); err != nil {
		return fmt.Errorf("--%s: %w", options.RotateEveryFlag, err)
	}
	if longest := o.ExternalSigner.MaxTokenExpiration; o.Rotation.Policy.TokenLifetime < longest {
		m.logger.Info("Warning: --longest-token-lifetime is less than --external-signer-max-token-expiration, so keys are pruned while tokens of them live",
			"lifetime", o.Rotation.Policy.TokenLifetime, "tokens", longest)
	}
	gate, err := published.NewGate(o.Publishing.Published.Gate(o.Keys.Issuers...))
	if err != nil {
		return fmt.Errorf("--%s: %w", options.PublishedCAFileFlag, err)
	}
	controller := keyrotation.NewController(keyrotation.Config{
		Schedule: keyrotation.Schedule{Every: o.Rotation.Every, Algorithm: o.Rotation.Algorithm, Signers: o.Rotation.Keys},
		Operator: func() *keyrotation.Operator {
			operator := &keyrotation.Operator{
				File: ring.Signing(m.files.signers.Sign), Signers: m.files.signers, Issuer: o.Keys.Issuer(), Policy: o.Rotation.Policy, Clock: clock.RealClock{},
				Cluster: &keyrotation.Cluster{
					Client: m.clients.main, Issuer: o.Keys.Issuer(), Namespace: metav1.NamespaceSystem, Account: "default", Dial: m.clients.dial,
				},
			}
			if gate != nil {
				operator.Gate = gate // one for all passes: it remembers
			}
			return operator
		},
		Unready:  m.unready,
		Recorder: m.recorder,
		Process:  m.process,
		Metrics:  keyrotation.NewMetrics(legacyregistry.MustRegister),
		Loops:    m.loops,
	})
	m.onRing = append(m.onRing, controller.RingChanged)
	r.run = controller.Run
	// The check never fails: the key that signs goes on signing.
	r.check = func() (string, error) { return controller.Status(), nil }
	return nil
}

// unready returns why keys must not rotate now: what /readyz says of the signing key, of permissions
// and of publishing.
func (m *manager) unready() string {
	if err := m.maySign(); err != nil {
		return err.Error()
	}
	if !m.activator.Confirmed(m.ring.Ring().ActiveID()) {
		return m.activator.Status()
	}
	for _, part := range m.runnables {
		switch part.name {
		case "permissions":
			if _, err := part.check(); err != nil {
				return err.Error()
			}
		case "published-files":
			if trouble, _ := part.check(); trouble != "" {
				return trouble
			}
		}
	}
	return ""
}
