// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"k8s.io/component-base/metrics/legacyregistry"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/external"
)

// listenAsSigner takes the socket of the external signer, or returns nil if there is to
// be none. It is the last thing that a start-up does, because only Run gives it up.
func (o *Options) listenAsSigner(ring *signing.Keyring) (*external.Server, error) {
	if o.ExternalSigner.Socket == "" {
		return nil, nil
	}
	server, err := external.Listen(external.Config{
		Path:               o.ExternalSigner.Socket,
		AllowedUIDs:        o.ExternalSigner.uids(),
		Signer:             ring,
		Keys:               ring,
		Issuers:            o.Keys.Issuers,
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
