// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/external"
	"sa-controller-manager/tokens"
)

func (m *manager) buildSigner(r *runnable) error {
	if m.options.ExternalSigner.Socket != "" {
		r.run = func(ctx context.Context) error { return m.signer.Run(ctx) }
		r.check = func() (string, error) { return m.signer.Status() }
	}
	return nil
}

// listenAsSigner takes the socket of the external signer, or returns nil if there is to
// be none. It is the last thing that a start-up does, because only Run gives it up.
func listenAsSigner(o *options.Options, ring *signing.Keyring, maySign func() error) (*external.Server, error) {
	if o.ExternalSigner.Socket == "" {
		return nil, nil
	}
	// kube-apiserver reads what it is told once, at its start. It goes on asking for what it was told
	// then, or for the year that Pods get, and enforces it.
	policy, err := tokens.NewPolicy(o.Keys.Issuers, max(o.ExternalSigner.MaxTokenExpiration, 365*24*time.Hour), nil)
	if err != nil {
		return nil, fmt.Errorf("--service-account-issuer: %w", err)
	}
	server, err := external.Listen(external.Config{
		Path:               o.ExternalSigner.Socket,
		AllowedUIDs:        o.ExternalSigner.UIDs(),
		Signer:             signing.Guard{Signer: ring, May: maySign},
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

// keptForSigner reports whether kube-apiserver will get a key on the socket after a restart of this
// process too: a key that the private key file held once has to be in a verification key file. It
// is nil without the socket, as kube-apiserver has files of its own then.
func (m *manager) keptForSigner() func(keyID string) bool {
	if m.options.ExternalSigner.Socket == "" {
		return nil
	}
	return func(keyID string) bool {
		return slices.ContainsFunc(m.files.publicKeys(), func(key signing.PublicKey) bool { return key.ID == keyID })
	}
}
