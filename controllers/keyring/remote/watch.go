// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"sa-controller-manager/internal/series"
	"sa-controller-manager/signing"
)

const (
	// watchPeriod is how often a signer that is away is tried. One that is there is tried less often, because a cloud
	// takes money for a signature.
	watchPeriod  = 5 * time.Second
	activePeriod = 2*watchPeriod - time.Second // each other time
	otherPeriod  = time.Minute
	// unpinnedPeriod is how often what a signer lists is reported.
	unpinnedPeriod = 10 * time.Minute
)

// Watch follows the signers of the active and the next key, and of one to go back to.
type Watch struct {
	Ring func() *signing.Ring
	// Probe has a key sign what opens nothing. The claims are ours, so that any error of it begins an outage.
	Probe func(ctx context.Context, key *signing.PrivateKey) error
	// Away is called once in an outage, Back when it has ended.
	Away func(key *signing.PrivateKey, reason string)
	Back func(key *signing.PrivateKey)
	// Unpinned is called when a signer lists keys that the ring does not have: it may sign with them
	// next, and then nothing that it signs is valid.
	Unpinned func(key *signing.PrivateKey, ids []string)
}

// watched is what Watch has reported of a signer.
type watched struct {
	keyID    string
	next     time.Time
	away     string // the reason
	unpinned string
	reported time.Time // when unpinned was
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
				c.tried.Delete(r.keyID)
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

// Away returns why the process that has a key does not sign with it, and for how long; "" if it does. It does not block.
func (c *Client) Away(key *signing.PrivateKey) (reason string, lasted time.Duration) {
	if away := c.away(key); away.reason != "" {
		return away.reason, time.Since(away.since)
	}
	if _, tried := c.tried.Load(key.ID()); !tried {
		return "it was not tried yet", 0
	}
	return "", 0
}

// poll asks one signer if it is time to, and reports what has changed.
func (c *Client) poll(ctx context.Context, w *Watch, key *signing.PrivateKey, r *watched) {
	reason := c.away(key).reason
	if reason != "" || !time.Now().Before(r.next) {
		r.next = time.Now().Add(otherPeriod)
		if key.ID() == w.Ring().ActiveID() {
			r.next = time.Now().Add(activePeriod)
		}
		err := w.Probe(ctx, key)
		if ctx.Err() != nil {
			return
		}
		c.probed(key, err)
		if reason = c.away(key).reason; reason == "" {
			c.pollKeys(ctx, w, key, r)
		}
	}
	c.metrics.up.WithLabelValues(key.ID()).Set(series.Bool(reason == ""))
	_, tried := c.tried.Swap(key.ID(), nil)
	if !tried || reason != r.away {
		c.Changed.Notify(key)
	}
	logger := klog.FromContext(ctx).WithValues("signer", key.Signer(), "keyID", key.ID())
	switch {
	case reason == r.away:
	case reason == "":
		logger.Info("The process that has a signing key signs again")
		w.Back(key)
	default:
		logger.Info("The process that has a signing key does not sign", "reason", reason)
		if r.away == "" {
			w.Away(key, reason)
		}
	}
	r.away = reason
}

// probed begins or ends an outage with what Probe returned.
func (c *Client) probed(key *signing.PrivateKey, err error) {
	name, _ := signing.ParseSigner(key.Signer())
	s, unknown := c.signer(name)
	switch away, ok := errors.AsType[*signing.UnavailableError](err); {
	case unknown != nil:
	case s.lied.Swap(false) && err == nil: // to a caller
	case ok:
		s.began(away.Reason, away.Refused)
	case err != nil:
		s.began(err.Error(), false)
	default:
		s.ended()
	}
}

// away returns why a key does not sign, the zero value if nothing is known against it.
func (c *Client) away(key *signing.PrivateKey) outage {
	name, _ := signing.ParseSigner(key.Signer())
	s, err := c.signer(name)
	if err != nil {
		since, _ := c.missing.LoadOrStore(name, time.Now())
		began, _ := since.(time.Time)
		return outage{since: began, reason: err.Error()}
	}
	c.missing.Delete(name)
	if away := s.outage.Load(); away != nil {
		return *away
	}
	return outage{}
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
	set := w.Ring().KeySet()
	var ids []string
	for _, one := range listed.GetKeys() {
		public, err := publicKey(one)
		if pinned, ok := set.Lookup(one.GetKeyId()); err != nil || !ok || !pinned.Equal(public) {
			ids = append(ids, fmt.Sprintf("%.64q", one.GetKeyId()))
		}
	}
	c.metrics.unpinned.WithLabelValues(key.ID()).Set(float64(len(ids)))
	if now := strings.Join(ids, ", "); now != r.unpinned && time.Since(r.reported) > unpinnedPeriod {
		if r.unpinned, r.reported = now, time.Now(); now != "" {
			w.Unpinned(key, ids)
		}
	}
}

// Status describes the signers of a ring, for people.
func (c *Client) Status(ring *signing.Ring) string {
	var lines []string
	for _, key := range keys(ring) {
		state := "signs"
		if reason := c.away(key).reason; reason != "" {
			state = "is away, its keys verify: " + reason
		}
		lines = append(lines, fmt.Sprintf("%s (key %s) %s", key.Signer(), key.ID(), state))
	}
	if lines == nil {
		return "all keys are in files"
	}
	return strings.Join(lines, "; ")
}
