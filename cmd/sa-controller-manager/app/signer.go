// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"k8s.io/component-base/metrics/legacyregistry"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/external"
	"sa-controller-manager/tokens"
)

// listenAsSigner takes the socket of the external signer, or returns nil if there is to
// be none. It is the last thing that a start-up does, because only Run gives it up.
func (o *Options) listenAsSigner(ring *signing.Keyring) (*external.Server, error) {
	if o.ExternalSigner.Socket == "" {
		return nil, nil
	}
	policy, err := tokens.NewPolicy(o.Keys.Issuers, o.ExternalSigner.MaxTokenExpiration, nil)
	if err != nil {
		return nil, fmt.Errorf("--service-account-issuer: %w", err)
	}
	server, err := external.Listen(external.Config{
		Path:               o.ExternalSigner.Socket,
		AllowedUIDs:        o.ExternalSigner.uids(),
		Signer:             ring,
		Keys:               ring,
		Check:              policy.Check,
		MaxTokenExpiration: o.ExternalSigner.MaxTokenExpiration,
		RefreshHint:        o.ExternalSigner.RefreshHint,
		QPS:                o.ExternalSigner.QPS,
		Metrics:            external.NewMetrics(legacyregistry.MustRegister),
	})
	if err != nil {
		return nil, fmt.Errorf("--external-signer-socket: %w", err)
	}
	return server, nil
}
