// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/ring"
)

// cached returns a *ring.Refusal while a cache may have a copy of the key set without the next key. Issuers
// are read once every host has published the key for long enough.
func (o *Operator) cached(ctx context.Context, rings consistency.Published, state ring.State, without []string) error {
	if err := rings.Cached(state, without, o.Policy.CacheAge, o.Clock.Now()); err != nil || o.ReadIssuer == nil {
		return err
	}
	issuers := o.Issuers
	if len(issuers) == 0 {
		issuers = []string{o.Issuer}
		if actual, err := keyprobe.LookUpIssuer(ctx, o.Cluster.Client); o.Issuer == "" && err == nil {
			issuers[0] = actual
		}
	}
	next, _ := state.Next()
	for _, issuer := range issuers {
		keys, err := o.ReadIssuer(ctx, issuer)
		if err != nil && len(o.Issuers) == 0 {
			continue // it is not public
		}
		result, detail := published.Find(next.PublicKey, keys)
		if err != nil {
			result, detail = published.Missing, err.Error()
		}
		if result != published.Same {
			return &ring.Refusal{
				Reason: fmt.Sprintf("relying parties of %s do not have key %s: %s", issuer, next.ID, detail),
				Remedy: "have the keys of the ring published there (keys jwks --check)", Later: true,
				Breaks: "they refuse new tokens",
			}
		}
	}
	return nil
}
