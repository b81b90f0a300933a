// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package extras

import (
	"fmt"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/keyring/external"
	"sa-controller-manager/tokens/policy"
)

// buildSigner takes the socket of the external signer. While nothing is known of other rings and of
// kube-apiserver, nothing is known against the key.
func (e *extras) buildSigner(p *app.Part) error {
	o := p.Options
	if o.ExternalSigner.Socket == "" {
		return nil
	}
	allowed, err := signerPolicy(o)
	if err != nil {
		return fmt.Errorf("--service-account-issuer: %w", err)
	}
	server, err := external.Listen(external.Config{
		Path:               o.ExternalSigner.Socket,
		AllowedUIDs:        o.ExternalSigner.UIDs(),
		Signer:             p.Signs,
		Keys:               p.Keyring,
		Check:              allowed.Check,
		MaxTokenExpiration: o.ExternalSigner.MaxTokenExpiration,
		RefreshHint:        o.ExternalSigner.RefreshHint,
		QPS:                o.ExternalSigner.QPS,
		Metrics:            external.NewMetrics(p.Registry.MustRegister),
	})
	if err != nil {
		return fmt.Errorf("--external-signer-socket: %w", err)
	}
	p.Run, p.Check = server.Run, server.Status
	return nil
}

// signerPolicy refuses tokens that live longer than the larger of --external-signer-max-token-expiration
// and a year. kube-apiserver reads the announced maximum once, at its start, and enforces it: after
// the flag was lowered it still asks for the old maximum, or for the year that Pods get.
func signerPolicy(o *options.Options) (*policy.Policy, error) {
	return policy.New(o.Keys.Issuers, max(o.ExternalSigner.MaxTokenExpiration, 365*24*time.Hour), nil)
}
