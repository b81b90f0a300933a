// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sa-controller-manager/signing/ring"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/tokenload"
)

const (
	// presenters request and present tokens, each once in an interval.
	presenters      = 3
	presentInterval = 100 * time.Millisecond
	// roundsPerStep is how many rounds every step waits for at least.
	roundsPerStep = 30
)

// clients are those of a cluster whose keys an operator changes meanwhile. None of their tokens may be refused.
type clients struct {
	*story

	load     *tokenload.Load
	ringFile string
	flags    func() []string // of the operator's commands, besides that of the ring
	used     []ring.Key      // that have signed, in order
	stop     func()
}

// keys runs a command of the operator on the key ring, and prints it.
func (c *clients) keys(ctx context.Context, words string) error {
	c.notef("command", "sa-controller-manager keys %s", words)
	return c.try(ctx, words)
}

// try runs such a command. Another key may sign from when it begins.
func (c *clients) try(ctx context.Context, words string) error {
	args := append(strings.Fields("keys "+words), "--service-account-key-ring="+c.ringFile)
	if _, err := c.binary.Run(ctx, append(args, c.flags()...)...); err != nil {
		return err
	}
	_, err := c.active()
	return err
}

// active returns the key that is to sign, and notes that it does.
func (c *clients) active() (ring.Key, error) {
	state, err := ring.At(c.ringFile).Read()
	if err != nil {
		return ring.Key{}, err
	}
	active := state.Active()
	if !slices.ContainsFunc(c.used, func(used ring.Key) bool { return used.ID == active.ID }) {
		c.used = append(c.used, active)
	}
	return active, nil
}

// sign verifies that new tokens are signed with the active key, those of each host, which may have its copy of the
// ring a moment later, and those of the clients.
func (c *clients) sign(ctx context.Context) error {
	active, err := c.active()
	if err != nil {
		return err
	}
	for _, party := range c.load.Issuers {
		if err := await.Poll(ctx, func(ctx context.Context) error {
			token, err := party.Request(ctx)
			switch {
			case errors.Is(err, tokenload.ErrLost):
				return nil
			case err == nil && token.KeyID != active.ID:
				err = fmt.Errorf("%s: a requested token is signed with %s, want %s", party.Name, token.KeyID, active.ID)
			}
			return err
		}); err != nil {
			return err
		}
	}
	c.notef("signs", "%s %s", active.Algorithm, active.ID)
	before := c.load.Tally().Keys[active.ID]
	return await.Poll(ctx, func(context.Context) error {
		if c.clients != nil && c.load.Tally().Keys[active.ID] == before {
			return fmt.Errorf("the clients get no token that is signed with %s", active.ID)
		}
		return nil
	})
}

// start has them request and present tokens until stop has returned.
func (c *clients) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range presenters {
		running.Go(func() { c.load.Run(ctx, presentInterval) })
	}
	c.clients, c.stop = c, func() {
		cancel()
		running.Wait()
	}
}

// goOn returns once they have presented each token that they keep, and many new ones.
func (c *clients) goOn(ctx context.Context) error {
	if err := c.load.AwaitRounds(ctx, max(roundsPerStep, c.load.Tally().Kept+1)); err != nil {
		return err
	}
	seen := c.load.Tally()
	if seen.First != nil {
		return seen.First
	}
	c.notef("presented", "new tokens and %d kept ones, of all keys that have signed, to each kube-apiserver: none refused", seen.Kept)
	return nil
}

// judge ends them and prints the results. It is an error if a request failed, a token was refused, or another
// key than those that were to sign has signed.
func (c *clients) judge() error {
	if c.clients == nil {
		return nil
	}
	c.stop()
	seen := c.load.Tally()
	c.linef("\nTokens of the clients")
	c.linef("%8d %-32s %d failed", seen.Requested, "requested", seen.Failed)
	for _, party := range slices.Sorted(maps.Keys(seen.Accepted)) {
		c.linef("%8d %-32s %d refused", seen.Accepted[party], "accepted by "+party, seen.Refused[party])
	}
	c.linef("\nKeys that signed them")
	others := seen.Requested - seen.Failed
	for _, key := range c.used {
		c.linef("%8d %s %s", seen.Keys[key.ID], key.Algorithm, key.ID)
		others -= seen.Keys[key.ID]
	}
	if seen.First == nil && others != 0 {
		return fmt.Errorf("%d tokens are signed with other keys than these", others)
	}
	return seen.First
}
