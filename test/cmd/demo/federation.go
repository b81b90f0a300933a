// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"sa-controller-manager/signing"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/federation"
)

const (
	// presenters present tokens, each once in an interval.
	presenters      = 3
	presentInterval = 100 * time.Millisecond
	// roundsPerStep is how many rounds every step waits for.
	roundsPerStep = 30
)

// trust is the demonstration of a second cluster that trusts the first one's issuer, by the documents
// at its URL, while the keys of the first rotate. Neither may refuse a token.
type trust struct {
	*story

	world *federation.World
	ends  func()            // the presenters
	stale federation.Change // to what was published before the directory was gone
}

func showFederation(ctx context.Context, s *story) (err error) {
	s.Linef("Published keys, which a second cluster verifies with while they rotate\n")
	if s.binary, err = devcluster.FindBinary(ctx); err != nil {
		return err
	}
	d := &trust{story: s}
	d.world, err = federation.Start(ctx, federation.Config{
		Binary: s.binary, MaxAge: 5 * time.Second,
	})
	defer func() { err = errors.Join(err, d.world.Stop()) }()
	if err != nil {
		return err
	}
	s.manager = d.world.Manager
	s.Ready("two control planes, of which the second trusts the issuer of the first, and an HTTPS server of its documents")
	d.present()
	err = d.show(ctx, d.afterEach(d.trustSteps()))
	d.ends()
	return errors.Join(err, d.judge())
}

func (d *trust) trustSteps() []step {
	issuer := d.world.Edge.URL
	return []step{
		{
			"The second cluster accepts tokens of the first",
			"documents at the issuer's URL, and tokens that both kube-apiservers accept", d.published,
		},
		{"A rotation, once every copy has the next key", "tokens of the next key that both accept", d.rotates},
		{"A rotation to another algorithm", "tokens of the next key that both accept", d.rotatesTo},
		{"The active key has leaked", "tokens of the next key that both accept at once", d.leaks},
		{"The directory is gone, and the next key is replaced", "that the next key does not sign", d.unmounted},
		{
			"The directory is back, and a cache serves what it had before", "that the next key does not sign",
			func(ctx context.Context) error { return d.refusedFor("is not shown at https://", d.stale)(ctx) },
		},
		{
			"The issuer's URL has the documents of another issuer", "that the next key does not sign",
			d.refusedFor("is of another issuer", federation.In(signing.DiscoveryPath, issuer, "https://other.example.com")),
		},
		{
			"The discovery document leads elsewhere", "that the next key does not sign",
			d.refusedFor("it is on host", federation.In(signing.DiscoveryPath, issuer+signing.JWKSPath, "https://other.example.com/keys")),
		},
		{
			"The issuer's URL has our documents again", "tokens of the next key that both accept", d.released,
		},
	}
}

// present starts the clients, which end when ends has returned.
func (d *trust) present() {
	ctx, stop := context.WithCancel(context.Background())
	var clients sync.WaitGroup
	for range presenters {
		clients.Go(func() { d.world.Holder.Run(ctx, presentInterval) })
	}
	d.ends = func() {
		stop()
		clients.Wait()
	}
}

// afterEach ends each step with a check that the clients make progress and that nothing was refused.
func (d *trust) afterEach(steps []step) []step {
	for i, step := range steps {
		steps[i].run = func(ctx context.Context) error {
			if err := step.run(ctx); err != nil {
				return err
			}
			if err := d.world.Holder.AwaitRounds(ctx, roundsPerStep); err != nil {
				return err
			}
			seen := d.world.Holder.Tally()
			d.Notef("presented", "new tokens and a kept one of each key in the ring (%d) to both clusters: %d refused", len(seen.Kept),
				refused(seen))
			return unrefused(seen)
		}
	}
	return steps
}

// refused counts what no client may see.
func refused(seen federation.Tally) int {
	n := seen.Failed
	for _, count := range seen.Refused {
		n += count
	}
	return n
}

func unrefused(seen federation.Tally) error {
	if refused(seen) > 0 {
		return fmt.Errorf("%d requests for tokens failed, %v tokens were refused; the first one: %w", seen.Failed, seen.Refused,
			orNil(seen.FirstRefusal))
	}
	return nil
}

// judge prints the results once the clients have ended.
func (d *trust) judge() error {
	seen := d.world.Holder.Tally()
	d.Linef("\nTokens of the first cluster, signed with %d keys", len(seen.Keys))
	d.Linef("%8d %-32s %d failed", seen.Rounds, "requested", seen.Failed)
	for _, party := range slices.Sorted(maps.Keys(seen.Accepted)) {
		d.Linef("%8d %-32s %d refused", seen.Accepted[party], "accepted by the "+party, seen.Refused[party])
	}
	return unrefused(seen)
}

func (d *trust) published(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.world.Edge.URL+signing.JWKSPath, nil)
	if err != nil {
		return err
	}
	response, err := d.world.Edge.HTTP.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close() // its headers say enough
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	d.Notef("published", "%s%s\n%s, %s", d.world.Edge.URL, signing.JWKSPath, response.Header.Get("Content-Type"),
		response.Header.Get("Cache-Control"))
	return nil
}

// keys runs a command of the product on the key ring, and returns once the clients get tokens of the active key.
func (d *trust) keys(ctx context.Context, words ...string) error {
	d.Notef("command", "sa-controller-manager keys %s", strings.Join(words, " "))
	if _, err := d.world.Keys(ctx, words...); err != nil {
		return err
	}
	state, err := d.world.Ring()
	if err != nil {
		return err
	}
	active := state.Active()
	d.Notef("signs", "%s %s", active.Algorithm, active.ID)
	return await.Poll(ctx, func(context.Context) error {
		if signed := d.world.Holder.Tally().Keys; !slices.Contains(signed, active.ID) {
			return fmt.Errorf("tokens are signed with %q", signed)
		}
		return nil
	})
}

func (d *trust) rotates(ctx context.Context) error {
	return d.keys(ctx, "rotate", "--wait", "--cache-age=5s")
}

func (d *trust) rotatesTo(ctx context.Context) error {
	if err := d.keys(ctx, "next", "--algorithm=P-256"); err != nil {
		return err
	}
	return d.rotates(ctx)
}

// leaks revokes the active key. The next one signs at once, and the second cluster has it.
func (d *trust) leaks(ctx context.Context) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	state, err := d.world.Ring()
	if err != nil {
		return err
	}
	return d.keys(ctx, "revoke", state.Active().ID, "--yes")
}

// ready returns once every copy of the key set has the next key: then a rotation is not refused for it. Nothing
// is rotated.
func (d *trust) ready(ctx context.Context) error {
	if err := d.world.AwaitPublished(ctx); err != nil {
		return err
	}
	// The second cluster reads the documents at least once in that time.
	return d.world.Holder.AwaitRounds(ctx, 2*roundsPerStep)
}

// unmounted replaces the next key while it cannot be published, until the step has ended.
func (d *trust) unmounted(ctx context.Context) (err error) {
	// The second cluster reads the key that signs now before the directory is gone.
	if err := d.ready(ctx); err != nil {
		return err
	}
	if d.stale, err = d.world.Edge.Stale(ctx); err != nil {
		return err
	}
	restore, err := d.world.Unmount()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	if err := d.keys(ctx, "next", "--algorithm=P-384"); err != nil {
		return err
	}
	return d.refusedFor("is not shown at", nil)(ctx)
}

// refusedFor returns a step in which a command refuses to have the next key sign because of what the
// issuer's URL answers.
func (d *trust) refusedFor(reason string, change federation.Change) func(context.Context) error {
	return func(ctx context.Context) error {
		d.world.Edge.Answer(change)
		d.Notef("command", "sa-controller-manager keys rotate --cache-age=5s")
		var refusal error
		if err := await.Poll(ctx, func(ctx context.Context) error {
			// It may be refused because it is too early, too.
			if _, refusal = d.world.Keys(ctx, "rotate", "--cache-age=5s"); refusal != nil && !strings.Contains(refusal.Error(), reason) {
				return refusal
			}
			return nil
		}); err != nil {
			return err
		}
		if refusal == nil {
			return errors.New("the next key signs")
		}
		d.Notef("refused", "%s", strings.ReplaceAll(refusal.Error(), ": ", ":\n"))
		return nil
	}
}

func (d *trust) released(ctx context.Context) error {
	d.world.Edge.Answer(nil)
	// The leader looks every 30 s, so it is to see the key at once.
	if err := d.world.AwaitPublished(ctx); err != nil {
		return err
	}
	return d.rotates(ctx)
}
