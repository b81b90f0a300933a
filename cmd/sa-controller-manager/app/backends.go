// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"strings"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/tokens"
)

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
				m.recorder.Warn(m.process, "SigningKeyAway", "Sign", fmt.Sprintf("%s does not sign with key %q, so no token is issued: %s", key.Signer(), key.ID(), reason))
			},
			Back: func(key *signing.PrivateKey) {
				m.recorder.Normal(m.process, "SigningKeyBack", "Sign", fmt.Sprintf("%s signs again with key %q", key.Signer(), key.ID()))
			},
			Unpinned: func(key *signing.PrivateKey, ids []string) {
				m.recorder.Warn(m.process, "UnpinnedKey", "Sign", fmt.Sprintf("%s lists keys that the key ring does not have (%s): tokens that it signs with them are refused, so rotate to them first",
					key.Signer(), strings.Join(ids, ", ")))
			},
		})
		return nil
	}
	r.check = func() (string, error) { return signers.Status(m.ring.Ring()), nil }
	return nil
}
