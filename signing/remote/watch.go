// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sa-controller-manager/signing"
)

const (
	// watchPeriod is how often a signer that is away is tried, and the least between two polls of the
	// keys of one that is there. maxHint is the most, whatever it hints at.
	watchPeriod = 5 * time.Second
	maxHint     = time.Minute
)

// Watch follows the signers of the active and the next key, and of one to go back to.
type Watch struct {
	Ring func() *signing.Ring
	// Probe has a key sign what opens nothing.
	Probe func(ctx context.Context, key *signing.PrivateKey) error
	// Away is called once in an outage, Back when it has ended.
	Away func(key *signing.PrivateKey, reason string)
	Back func(key *signing.PrivateKey)
	// Unpinned is called when a signer lists keys that the ring does not have: it may sign with them
	// next, and then nothing that it signs is valid.
	Unpinned func(key *signing.PrivateKey, ids []string)
	// Changed, if not nil, is called when the answer of Signs has changed.
	Changed func()
}

// watched is what Watch has reported of a signer.
type watched struct {
	keyID    string
	next     time.Time
	away     bool
	unpinned string
}

// Watch returns when ctx ends.
func (c *Client) Watch(ctx context.Context, w Watch) {
	ticker := time.NewTicker(watchPeriod)
	defer ticker.Stop()
	reported := map[string]*watched{} // by kep740:NAME
	for {
		keys := keys(w.Ring())
		for signer, r := range reported {
			if !slices.ContainsFunc(keys, func(key *signing.PrivateKey) bool { return key.Signer() == signer && key.ID() == r.keyID }) {
				c.metrics.forget(r.keyID)
				c.signs.Delete(r.keyID)
				delete(reported, signer)
			}
		}
		for _, key := range keys {
			if reported[key.Signer()] == nil {
				reported[key.Signer()] = &watched{keyID: key.ID()}
			}
			c.poll(ctx, &w, key, reported[key.Signer()])
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// keys returns the keys of a ring that other processes sign with, or may.
func keys(ring *signing.Ring) (keys []*signing.PrivateKey) {
	for _, key := range ring.All() {
		if key.Private != nil && key.Private.Signer() != "" {
			keys = append(keys, key.Private)
		}
	}
	return keys
}

// Signs reports whether the process that has a key has signed with it last. It does not block.
func (c *Client) Signs(id string) bool {
	_, ok := c.signs.Load(id)
	return ok
}

// poll asks one signer if it is time to, and reports what has changed.
func (c *Client) poll(ctx context.Context, w *Watch, key *signing.PrivateKey, r *watched) {
	reason := c.away(key)
	if reason != "" || !time.Now().Before(r.next) {
		r.next = time.Now().Add(watchPeriod)
		if err := w.Probe(ctx, key); err != nil && ctx.Err() != nil {
			return
		}
		reason = c.away(key)
		if reason == "" {
			c.pollKeys(ctx, w, key, r)
		}
	}
	up, did := 0.0, c.Signs(key.ID())
	if reason == "" {
		up = 1
		c.signs.Store(key.ID(), nil)
	} else {
		c.signs.Delete(key.ID())
	}
	if did != (reason == "") && w.Changed != nil {
		w.Changed()
	}
	c.metrics.up.WithLabelValues(key.ID()).Set(up)
	switch {
	case reason != "" && !r.away:
		w.Away(key, reason)
	case reason == "" && r.away:
		w.Back(key)
	}
	r.away = reason != ""
}

// away returns why the last signature of a key failed, or "".
func (c *Client) away(key *signing.PrivateKey) string {
	name, _ := signing.ParseSigner(key.Signer())
	s, err := c.signer(name)
	if err != nil {
		return err.Error()
	}
	if away := s.outage.Load(); away != nil {
		return away.reason
	}
	return ""
}

func (c *Client) pollKeys(ctx context.Context, w *Watch, key *signing.PrivateKey, r *watched) {
	name, _ := signing.ParseSigner(key.Signer())
	s, err := c.signer(name)
	if err != nil {
		return
	}
	listed, err := s.fetch(ctx)
	if err != nil {
		return // it has just signed
	}
	hint := time.Duration(min(listed.GetRefreshHintSeconds(), int64(maxHint/time.Second))) * time.Second
	r.next = time.Now().Add(max(hint, watchPeriod))
	set := w.Ring().KeySet()
	var ids []string
	for _, one := range listed.GetKeys() {
		public, err := publicKey(one)
		if pinned, ok := set.Lookup(one.GetKeyId()); err != nil || !ok || !pinned.Equal(public) {
			ids = append(ids, fmt.Sprintf("%.64q", one.GetKeyId()))
		}
	}
	c.metrics.unpinned.WithLabelValues(key.ID()).Set(float64(len(ids)))
	if now := strings.Join(ids, ", "); now != r.unpinned {
		if r.unpinned = now; now != "" {
			w.Unpinned(key, ids)
		}
	}
}

// Status describes the signers of a ring, for people.
func (c *Client) Status(ring *signing.Ring) string {
	var lines []string
	for _, key := range keys(ring) {
		state := "signs"
		if reason := c.away(key); reason != "" {
			state = "is away, its keys verify: " + reason
		}
		lines = append(lines, fmt.Sprintf("%s (key %s) %s", key.Signer(), key.ID(), state))
	}
	if lines == nil {
		return "all keys are in files"
	}
	return strings.Join(lines, "; ")
}
