// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"

	"sa-controller-manager/cmd/sa-controller-manager/app/keystore"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/tokens"
)

// remoteKeys returns the active and the next key of the ring, as far as other processes have them.
func remoteKeys(o *options.Keys) ([]*signing.PrivateKey, error) {
	if o.KeyRing == "" || o.KeySockets == "" {
		return nil, nil
	}
	sockets, err := cli.ReadFile(remote.SocketsFlag, o.KeySockets, remote.ParseSockets)
	if err != nil {
		return nil, err
	}
	store, err := keystore.Open(o.Store(), remote.NewClient(func() remote.Sockets { return sockets }, nil).Sign)
	if err != nil {
		return nil, err
	}
	return remote.Keys(store.Load()), nil
}

// checkBackends finds a process of this host that does not sign with its key of the ring.
func checkBackends(ctx context.Context, c *cluster) (answer, error) {
	findings, err := c.coldStart(ctx)
	if err != nil {
		return answer{}, err
	}
	result := answer{Findings: findings, Note: fmt.Sprintf("keys tried: %d", len(c.Remote))}
	if len(c.Remote) == 0 {
		result.Note = "no key of another process; --service-account-key-ring and --service-account-key-sockets name them"
	}
	for _, key := range c.Remote {
		if err := tokens.TrySigner(ctx, key, ""); err != nil {
			result.Findings = append(result.Findings, found("backend-away", err.Error(), "start or repair that process (docs/operations.md, SACMBackendAway)", key.ID()))
		}
	}
	return result, nil
}
