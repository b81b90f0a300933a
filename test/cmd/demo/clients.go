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

// keys runs a command of the operator on the key ring, and prints it.
func (d *rotation) keys(ctx context.Context, words string) error {
	d.notef("command", "sa-controller-manager keys %s", words)
	return d.try(ctx, words)
}

// try runs such a command. Another key may sign from when it begins.
func (d *rotation) try(ctx context.Context, words string) error {
	args := append(strings.Fields("keys "+words), "--service-account-key-ring="+d.ringFile)
	if _, err := d.binary.Run(ctx, append(args, d.apiServers()...)...); err != nil {
		return err
	}
	_, err := d.active()
	return err
}

// active returns the key that is to sign, and notes that it does.
func (d *rotation) active() (ring.Key, error) {
	state, err := ring.At(d.ringFile).Read()
	if err != nil {
		return ring.Key{}, err
	}
	active := state.Active()
	if !slices.ContainsFunc(d.used, func(used ring.Key) bool { return used.ID == active.ID }) {
		d.used = append(d.used, active)
	}
	return active, nil
}

// sign verifies that new tokens are signed with the active key, those of each host, which may have its copy of the
// ring a moment later, and those of the clients.
func (d *rotation) sign(ctx context.Context) error {
	active, err := d.active()
	if err != nil {
		return err
	}
	for _, party := range d.load.Issuers {
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
	d.notef("signs", "%s %s", active.Algorithm, active.ID)
	before := d.load.Tally().Keys[active.ID]
	return await.Poll(ctx, func(context.Context) error {
		if d.stop != nil && d.load.Tally().Keys[active.ID] == before {
			return fmt.Errorf("the clients get no token that is signed with %s", active.ID)
		}
		return nil
	})
}

// start has them request and present tokens until stop has returned.
func (d *rotation) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range presenters {
		running.Go(func() { d.load.Run(ctx, presentInterval) })
	}
	d.after, d.stop = d.goOn, func() {
		cancel()
		running.Wait()
	}
}

// goOn returns once they have presented each token that they keep, and many new ones.
func (d *rotation) goOn(ctx context.Context) error {
	if err := d.load.AwaitRounds(ctx, max(roundsPerStep, d.load.Tally().Kept+1)); err != nil {
		return err
	}
	seen := d.load.Tally()
	if seen.First != nil {
		return seen.First
	}
	d.notef("presented", "new tokens and %d kept ones, of all keys that have signed, to each kube-apiserver: none refused", seen.Kept)
	return nil
}

// judge ends them and prints the results. It is an error if a request failed, a token was refused, or another
// key than those that were to sign has signed.
func (d *rotation) judge() error {
	if d.stop == nil {
		return nil
	}
	d.stop()
	seen := d.load.Tally()
	d.linef("\nTokens of the clients")
	d.linef("%8d %-32s %d failed", seen.Requested, "requested", seen.Failed)
	for _, party := range slices.Sorted(maps.Keys(seen.Accepted)) {
		d.linef("%8d %-32s %d refused", seen.Accepted[party], "accepted by "+party, seen.Refused[party])
	}
	d.linef("\nKeys that signed them")
	others := seen.Requested - seen.Failed
	for _, key := range d.used {
		d.linef("%8d %s %s", seen.Keys[key.ID], key.Algorithm, key.ID)
		others -= seen.Keys[key.ID]
	}
	if seen.First == nil && others != 0 {
		return fmt.Errorf("%d tokens are signed with other keys than these", others)
	}
	return seen.First
}
