// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package extras

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/ring"
)

// buildRotation builds the controller that rotates keys by policy.
func (e *extras) buildRotation(p *app.Part) error {
	o := e.Options
	if o.Rotation.Every == 0 {
		return nil
	}
	file := ring.At(o.Keys.KeyRing)
	if err := file.CheckWritable(); err != nil {
		return fmt.Errorf("--%s: %w", options.RotateEveryFlag, err)
	}
	policy := ring.Policy(o.Rotation.Policy)
	if longest := o.ExternalSigner.MaxTokenExpiration; policy.TokenLifetime < longest {
		e.Logger.Info("Warning: --longest-token-lifetime is less than --external-signer-max-token-expiration, "+
			"so keys are pruned while tokens of them live", "lifetime", policy.TokenLifetime, "tokens", longest)
	}
	read := &o.Publishing.Published
	gate, err := published.NewGate(published.Config{
		Issuers: read.Issuers, Optional: read.Optional(o.Keys.Issuers...), JWKSHosts: read.JWKSHosts, CAFile: read.CAFile,
	})
	if err != nil {
		return fmt.Errorf("--%s: %w", options.PublishedCAFileFlag, err)
	}
	controller := operator.NewController(operator.Config{
		Schedule: operator.Schedule{Every: o.Rotation.Every, Algorithm: o.Rotation.Algorithm, Signers: o.Rotation.Keys},
		Operator: func() *operator.Operator {
			op := &operator.Operator{
				File: file.Signing(e.signers.Sign), Signers: e.signers, Issuer: o.Keys.Issuer(), Policy: policy, Clock: clock.RealClock{},
				Cluster: &operator.Cluster{
					Client: e.Client, Issuer: o.Keys.Issuer(), Namespace: metav1.NamespaceSystem, Account: "default", Dial: e.Dial,
				},
			}
			if gate != nil {
				op.Gate = gate // one for all passes: it remembers
			}
			return op
		},
		Unready:  e.unready,
		Recorder: e.Recorder,
		Process:  e.Process,
		Metrics:  operator.NewMetrics(e.Registry.MustRegister),
		Loops:    e.Loops,
	})
	e.OnRing = append(e.OnRing, controller.RingChanged)
	p.Run = controller.Run
	// The check never fails: the key that signs goes on signing.
	p.Check = func() (string, error) { return controller.Status(), nil }
	return nil
}

// unready returns why keys must not rotate now: what /readyz says of the signing key, of permissions
// and of publishing.
func (e *extras) unready() string {
	if err := e.Signs.May(); err != nil {
		return err.Error()
	}
	if !e.Probe.Confirmed(e.Keyring.Ring().ActiveID()) {
		return e.Probe.Status()
	}
	if _, err := e.Permissions.Status(); err != nil {
		return err.Error()
	}
	if e.publisher == nil {
		return ""
	}
	return e.publisher.Status()
}
