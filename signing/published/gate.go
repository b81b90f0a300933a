// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// Issuers are read at the longer interval, and more often while a key waits for less than minutes.
const (
	longInterval  = 30 * time.Second
	shortInterval = time.Second
)

// Config says where relying parties read the keys.
type Config struct {
	// Issuers are the URLs that must have the keys, and Optional those that count from their first
	// answer on.
	Issuers, Optional []string
	// JWKSHosts are Reader.Hosts.
	JWKSHosts []string
	// CAFile is a PEM bundle; empty means the CAs of the machine.
	CAFile string
}

// Gate holds a rotation until relying parties have the keys. It reads the issuers only when it is
// asked, and not more often than at its interval; what it has seen is in memory alone. It must not be
// used concurrently.
type Gate struct {
	Config

	read     func(ctx context.Context, issuer string) (Answer, error)
	clock    clock.PassiveClock
	looked   time.Time
	interval time.Duration
	watches  map[string]*watch
}

// NewGate returns a gate that has read nothing yet, or nil if there are no issuers. It reads the CA
// file.
func NewGate(config Config) (*Gate, error) {
	reader, err := NewReader(config.CAFile, config.JWKSHosts)
	if err != nil {
		return nil, err
	}
	if len(config.Issuers)+len(config.Optional) == 0 {
		return nil, nil
	}
	return &Gate{Config: config, read: reader.Issuer, clock: clock.RealClock{}, watches: map[string]*watch{}}, nil
}

// Seen is what is known of an issuer, for the rotation in progress if there is one.
type Seen struct {
	Issuer string `json:"issuer"`
	// Problem says what is wrong with the latest answer, "" if it has every key of the ring as it is.
	Problem string `json:"problem,omitempty"`
	// Drift means that relying parties refuse tokens sooner or later: a key that may have signed is
	// missing, or nothing can be read.
	Drift bool `json:"-"`
	// Ignored means that the issuer is optional and has not answered yet.
	Ignored bool `json:"ignored,omitempty"`
	// Since is when the unbroken run of answers that have the next key began.
	Since time.Time `json:"since,omitzero"`
	// Until is when no cache can have a copy without the next key any more.
	Until time.Time `json:"until,omitzero"`
	// CacheSeconds is how long a cache may keep what it has read.
	CacheSeconds int64 `json:"cacheSeconds"`
}

// CacheAge is CacheSeconds.
func (s Seen) CacheAge() time.Duration { return time.Duration(s.CacheSeconds) * time.Second }

// String is for people.
func (s Seen) String() string {
	switch {
	case s.Ignored:
		return fmt.Sprintf("%s is not waited for, because it has not answered: %s", s.Issuer, s.Problem)
	case s.Problem != "":
		return s.Issuer + ": " + s.Problem
	case s.Since.IsZero():
		return fmt.Sprintf("%s has every key; caches may keep a copy for %s", s.Issuer, s.CacheAge())
	}
	return fmt.Sprintf("%s has every key; the next one may sign when it was seen there for %s", s.Issuer, s.CacheAge())
}

// Look reads the issuers if it is time to, and returns what is known of them.
func (g *Gate) Look(ctx context.Context, state ring.State) []Seen {
	return g.look(ctx, state, "")
}

// look is Look for a ring without the key except.
func (g *Gate) look(ctx context.Context, state ring.State, except string) []Seen {
	var next signing.PublicKey
	if key, ok := state.Next(); ok {
		next = key.PublicKey
	}
	if now := g.clock.Now(); g.looked.IsZero() || now.Sub(g.looked) >= g.interval {
		g.looked = now
		g.readAll(ctx, next)
	}
	g.interval = longInterval
	var all []Seen
	for _, issuer := range slices.Concat(g.Issuers, g.Optional) {
		watch := g.watches[issuer]
		seen := Seen{Issuer: issuer, Problem: watch.problem(state, except), Since: watch.since}
		seen.Ignored = watch.at.IsZero() && !slices.Contains(g.Issuers, issuer)
		seen.Drift = !seen.Ignored && watch.problem(state, next.ID) != ""
		cacheAge := watch.cacheAge(g.clock.Now())
		if state.Phase() == ring.Published {
			// The ring has the --cache-age of the start, and what was seen then.
			cacheAge = max(watch.cacheAge(state.Rotation.StartedAt), state.Rotation.ActivateNotBefore.Sub(state.Rotation.StartedAt))
			g.interval = min(g.interval, max(cacheAge/5, shortInterval))
		}
		seen.CacheSeconds = int64(math.Ceil(cacheAge.Seconds()))
		if !watch.since.IsZero() {
			seen.Until = watch.since.Add(seen.CacheAge())
		}
		all = append(all, seen)
	}
	return all
}

func (g *Gate) readAll(ctx context.Context, next signing.PublicKey) {
	var readers sync.WaitGroup
	for _, issuer := range slices.Concat(g.Issuers, g.Optional) {
		if g.watches[issuer] == nil {
			g.watches[issuer] = &watch{}
		}
		watch := g.watches[issuer]
		readers.Go(func() {
			answer, err := g.read(ctx, issuer)
			watch.see(g.clock.Now(), next, answer, err)
		})
	}
	readers.Wait()
}

// Activate returns nil if no relying party can be without the next key, and otherwise a
// *ring.Refusal.
func (g *Gate) Activate(ctx context.Context, state ring.State) error {
	return mayActivate(g.look(ctx, state, ""), g.clock.Now())
}

func mayActivate(all []Seen, now time.Time) error {
	for _, seen := range all {
		refusal := &ring.Refusal{Breaks: "relying parties without the new key refuse its tokens until they read the keys at " +
			seen.Issuer + " again"}
		switch {
		case seen.Ignored:
			continue
		case seen.Problem != "":
			refusal.Reason, refusal.Later = seen.Issuer+": "+seen.Problem, true
			refusal.Remedy = "have the keys of the ring published there"
		case now.Before(seen.Until):
			refusal.Until = seen.Until
			refusal.Reason = fmt.Sprintf("%s was first seen with the new key at %s, and caches may use a copy without it for %s",
				seen.Issuer, seen.Since.UTC().Format(time.RFC3339), seen.CacheAge())
			refusal.Remedy = "wait until " + seen.Until.UTC().Format(time.RFC3339) + " with --wait, which goes on looking"
		default:
			continue
		}
		return refusal
	}
	return nil
}

// Prune returns nil if every issuer has the keys that the ring has without the key id, and otherwise
// a *ring.Refusal.
func (g *Gate) Prune(ctx context.Context, state ring.State, id string) error {
	for _, seen := range g.look(ctx, state, id) {
		if seen.Problem == "" || seen.Ignored {
			continue
		}
		return &ring.Refusal{
			Reason: seen.Issuer + ": " + seen.Problem, Later: true,
			Remedy: "have the keys of the ring published there first",
			Breaks: "a relying party that has the removed key alone refuses every token",
		}
	}
	return nil
}
