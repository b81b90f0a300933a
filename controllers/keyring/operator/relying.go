// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/ring"
)

// Relying says where relying parties outside of the cluster read the keys.
type Relying struct {
	// Issuers are the URLs that must have them. Without any, that of the cluster's issuer counts if it answers.
	Issuers []string
	// Read reads one. If it is nil, none is asked.
	Read func(ctx context.Context, issuer string) ([]signing.PublicKey, error)
}

// firstRead is an entry that this command has read first at a time.
type firstRead struct {
	entry consistency.Entry
	at    time.Time
}

// addSince adds to how long each host has published the next key the time since this command has read that: a host
// renews its entry once a minute, or at once if it stops publishing the key.
func (o *Operator) addSince(rings *consistency.Published) {
	if o.firstReads == nil {
		o.firstReads = map[string]firstRead{}
	}
	rings.Entries = slices.Clone(rings.Entries)
	for i := range rings.Entries {
		entry := &rings.Entries[i]
		first, known := o.firstReads[entry.Host]
		if !known || !reflect.DeepEqual(first.entry, *entry) {
			first = firstRead{*entry, o.Clock.Now()}
			o.firstReads[entry.Host] = first
		}
		entry.NextSeconds += int64(o.Clock.Since(first.at).Seconds())
	}
}

// cached returns a *ring.Refusal while a cache may have a copy of the key set without the next key. Issuers
// are read once every host has published the key for long enough.
func (o *Operator) cached(ctx context.Context, rings consistency.Published, state ring.State, without []string) error {
	o.addSince(&rings)
	if err := rings.Cached(state, without, o.Policy.CacheAge, o.Clock.Now()); err != nil || o.Relying.Read == nil {
		return err
	}
	issuers := o.Relying.Issuers
	if len(issuers) == 0 {
		issuers = []string{o.Issuer}
		if actual, err := keyprobe.LookUpIssuer(ctx, o.Cluster.Client); o.Issuer == "" && err == nil {
			issuers[0] = actual
		}
	}
	next, _ := state.Next()
	for _, issuer := range issuers {
		keys, err := o.Relying.Read(ctx, issuer)
		if err != nil && len(o.Relying.Issuers) == 0 {
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
