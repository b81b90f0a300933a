// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/tokens"
)

// checkLegacySigner refuses an active key whose process signs, but not the tokens that the token controller
// has to write. Whether a process that is away would is unknown, and the start must not wait for it.
func (m *manager) checkLegacySigner(ctx context.Context) error {
	if m.ring == nil || !m.signsLegacyTokens() {
		return nil
	}
	key := m.ring.Ring().Active()
	if key == nil || key.Signer() == "" || tokens.TrySigner(ctx, key, m.options.Keys.Issuer()) != nil {
		return nil //nolint:nilerr // it may come back
	}
	if refused, ok := errors.AsType[*signing.UnavailableError](tokens.TryLegacySigner(ctx, key)); !ok || !refused.Refused {
		return nil
	}
	return fmt.Errorf("--%s: %s refuses to sign tokens of Secrets with the active key %s: rotate to another key, or turn off the token controller with --controllers=*,-%s",
		options.KeyRingFlag, key.Signer(), key.ID(), options.ServiceAccountTokenController)
}

// buildKeyBackends follows the processes that have keys of the ring. Its check never fails: while one is
// away, all keys verify.
func (m *manager) buildKeyBackends(r *runnable) error {
	signers := m.files.signers
	if m.ring == nil || signers == nil {
		return nil
	}
	r.run = func(ctx context.Context) error {
		defer signers.Close()
		signers.Watch(ctx, remote.Watch{
			Ring: m.ring.Ring,
			Probe: func(ctx context.Context, key *signing.PrivateKey) error {
				return tokens.TrySigner(ctx, key, m.options.Keys.Issuer())
			},
			Away: func(key *signing.PrivateKey, reason string) {
				m.recorder.Warn(m.process, "SigningKeyAway", fmt.Sprintf("%s does not sign with key %q, so no token is issued: %s", key.Signer(), key.ID(), reason))
			},
			Back: func(key *signing.PrivateKey) {
				m.recorder.Normal(m.process, "SigningKeyBack", fmt.Sprintf("%s signs again with key %q", key.Signer(), key.ID()))
			},
			Unpinned: func(key *signing.PrivateKey, ids []string) {
				m.recorder.Warn(m.process, "UnpinnedKey", fmt.Sprintf("%s lists keys that the key ring does not have (%s): tokens that it signs with them are refused, so rotate to them first",
					key.Signer(), strings.Join(ids, ", ")))
			},
		})
		return nil
	}
	r.check = func() (string, error) { return signers.Status(m.ring.Ring()), nil }
	return nil
}
