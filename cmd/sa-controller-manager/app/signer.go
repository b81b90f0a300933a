// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/external"
	"sa-controller-manager/tokens/policy"
)

func (m *manager) buildSigner(r *runnable) error {
	if m.signer != nil {
		r.check = m.signer.Status
		may := m.maySign
		m.guard.Store(&may)
	}
	return nil
}

// signerMaySign is maySign. While nothing is known of other rings and of kube-apiserver, nothing is
// known against the key.
func (m *manager) signerMaySign() error {
	if may := m.guard.Load(); may != nil {
		return (*may)()
	}
	return nil
}

// whileSigning serves the socket of the external signer, if there is one, until work has returned.
// Its end by itself is that of the process.
func (m *manager) whileSigning(ctx context.Context, work func(context.Context) error) error {
	if m.signer == nil {
		return work(ctx)
	}
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	signing, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		ended <- m.signer.Run(signing)
		cancel()
	}()
	err := work(working)
	stop()
	return cmp.Or(<-ended, err)
}

// listenAsSigner takes the socket of the external signer, or returns nil if there is to
// be none. It is the last thing that can fail before whileSigning, because only Run gives it up.
func listenAsSigner(o *options.Options, ring *signing.Keyring, maySign func() error) (*external.Server, error) {
	if o.ExternalSigner.Socket == "" {
		return nil, nil
	}
	allowed, err := signerPolicy(o)
	if err != nil {
		return nil, fmt.Errorf("--service-account-issuer: %w", err)
	}
	server, err := external.Listen(external.Config{
		Path:               o.ExternalSigner.Socket,
		AllowedUIDs:        o.ExternalSigner.UIDs(),
		Signer:             signing.Guard{Signer: ring, May: maySign},
		Keys:               ring,
		Check:              allowed.Check,
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

// signerPolicy refuses tokens that live longer than the larger of --external-signer-max-token-expiration
// and a year. kube-apiserver reads the announced maximum once, at its start, and enforces it: after
// the flag was lowered it still asks for the old maximum, or for the year that Pods get.
func signerPolicy(o *options.Options) (*policy.Policy, error) {
	return policy.New(o.Keys.Issuers, max(o.ExternalSigner.MaxTokenExpiration, 365*24*time.Hour), nil)
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
