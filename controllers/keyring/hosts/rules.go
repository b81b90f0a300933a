// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"slices"
	"time"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/signing"
)

// MayWithdraw returns a *ring.Refusal if a next key has signed on some host: there are tokens of it. A
// revoked one may go.
func (p Published) MayWithdraw(key ring.Key) error {
	if p.Removed.Has(key.PublicKey) {
		return nil
	}
	for _, entry := range p.Entries {
		if role := entry.Keys[key.ID]; role == signing.Active || role == signing.Retired || entry.SignsWith == key.ID {
			return ring.Refuse(fmt.Sprintf("the next key %s has signed on host %s", key.ID, entry.Host),
				"bring the ring of that host here (keys import) or, if that host is gone for good: keys rotate --without-host="+entry.Host)
		}
	}
	return nil
}

// Lost reports whether no host but those of without could sign with a key in the last ten minutes. Then no caches
// are waited for: meanwhile no client gets a token.
func (p Published) Lost(id string, without []string) bool {
	entries := slices.DeleteFunc(slices.Clone(p.Entries), func(entry Entry) bool { return slices.Contains(without, entry.Host) })
	return len(entries) > 0 && !slices.ContainsFunc(entries, func(entry Entry) bool { return entry.Away[id].Minutes < 10 })
}

// Cached returns a *ring.Refusal while a cache may have a copy of the key set without the next key: until each
// host has published it for cacheAge. Hosts count that themselves, so clocks may differ.
func (p Published) Cached(own ring.State, without []string, cacheAge time.Duration, now time.Time) error {
	next, _ := own.Next()
	refusal := &ring.Refusal{
		Reason: fmt.Sprintf("key %s is not published by any host", next.ID), Later: true,
		Remedy: "start a manager with this key ring file",
		Breaks: "every verifier with a copy of the key set from before refuses new tokens until it renews the copy",
	}
	var last Entry
	for _, entry := range p.Entries {
		switch {
		case slices.Contains(without, entry.Host):
		case !entry.ShowsNext || entry.key(signing.Next) != next.ID:
			refusal.Reason = fmt.Sprintf("key %s is not published by host %s", next.ID, entry.Host)
			refusal.Remedy = fmt.Sprintf("see published-files in its /readyz?verbose or, if that host is gone for good, give "+
				"--without-host=%s",
				entry.Host)
			return refusal
		case last.Host == "" || entry.NextSeconds < last.NextSeconds:
			last = entry
		}
	}
	if last.Host == "" {
		return refusal
	}
	shown := time.Duration(last.NextSeconds) * time.Second
	if shown >= cacheAge {
		return nil
	}
	refusal.Until, refusal.Later = now.Add(cacheAge-shown), false
	refusal.Reason = fmt.Sprintf("copies of the key set may be without key %s, as long as it is not published for %s", next.ID, cacheAge)
	refusal.Remedy = fmt.Sprintf("wait for another %s, or give --wait: host %s has published it for %s", cacheAge-shown, last.Host, shown)
	return refusal
}
