// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sa-controller-manager/controllers/keyring/ring"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/must"
	"sa-controller-manager/test/tokenload"
)

// copyDelay is how long a copy of the ring takes to another host, at most.
const copyDelay = 500 * time.Millisecond

// host is a control-plane host: a kube-apiserver and the manager that signs for it, with a key ring of its own.
type host struct {
	*devcluster.Cluster
	*tokenload.Party
}

func ringOf(cluster *devcluster.Cluster) string {
	return filepath.Join(cluster.Dir(), "keys", "ring.json")
}

// demonstrate runs the steps on a cluster whose signer is started before it.
func (d *rotation) demonstrate(ctx context.Context, startSigner func(context.Context) error, steps []step) {
	d.binary = must.Get(devcluster.FindBinary(ctx))
	d.startHosts(ctx, startSigner)
	d.show(ctx, steps)
	d.judge()
}

func (d *rotation) startHosts(ctx context.Context, startSigner func(context.Context) error) {
	d.startCluster(ctx, devcluster.Options{
		ExternalSigner: true, APIServerFlags: d.serverFlags,
		BeforeAPIServer: func(cluster *devcluster.Cluster) (err error) {
			if d.cluster == nil {
				d.cluster, d.ringFile = cluster, ringOf(cluster)
				return startSigner(ctx)
			}
			if err := d.copyTo(ctx, cluster); err != nil {
				return err
			}
			d.managers[cluster], err = d.serve(cluster)
			return err
		},
	})
	d.managerReady(ctx)
	var parties []*tokenload.Party
	for i, name := range []string{"cp-1", "cp-2", "cp-3"} {
		cluster, err := d.cluster, error(nil)
		if i > 0 {
			cluster, err = d.cluster.Join(ctx, name)
		}
		if errors.Is(err, os.ErrPermission) {
			d.notef("skipped", "only root can make another host on this machine: %s", err)
			break
		}
		must.Do(err)
		must.Do(err)
		if i > 0 { // the first one keeps etcd
			d.ends = append(d.ends, cluster.Stop)
		}
		party := must.Get(tokenload.NewParty(name, cluster))
		d.hosts, parties = append(d.hosts, &host{cluster, party}), append(parties, party)
	}
	d.load = tokenload.New(d.ringFile, parties, parties)
	d.ready("%d hosts, each with sa-controller-manager, a key ring of its own and kube-apiserver, for which it signs", len(d.hosts))
}

// startSigner creates the key ring and starts the manager that signs with it. kube-apiserver
// starts after it.
func (d *rotation) startSigner(ctx context.Context) (err error) {
	// There is no cluster to ask yet.
	if _, err := d.binary.Run(ctx, append([]string{
		"keys", "init", "--from-private-key-file=" + d.cluster.SigningKeyFile(), "--service-account-key-ring=" + d.ringFile,
	}, d.keyFlags...)...); err != nil {
		return err
	}
	d.manager, err = d.serve(d.cluster)
	return err
}

func (d *rotation) signerFlags(cluster *devcluster.Cluster) []string {
	return slices.Concat(d.keyFlags, []string{
		"--service-account-private-key-file=", "--service-account-key-ring=" + ringOf(cluster),
		"--external-signer-socket=" + cluster.SignerSocket(), "--external-signer-refresh-hint=1s",
		"--token-secrets=manual", "--leader-elect=true",
	})
}

// live are the hosts that were not lost.
func (d *rotation) live() []*host {
	return slices.DeleteFunc(slices.Clone(d.hosts), func(h *host) bool { return h.Lost() })
}

// apiServers are the flags of the operator's commands for the hosts. Those that have joined are not found: their
// addresses are those of other loopback interfaces.
func (d *rotation) apiServers() []string {
	flags := []string{"--kubeconfig=" + d.cluster.Kubeconfig()}
	for _, h := range d.live() {
		flags = append(flags, "--apiserver="+h.Config().Host)
	}
	return flags
}

// copyTo gives a host a copy of the ring of the first one.
func (d *rotation) copyTo(ctx context.Context, cluster *devcluster.Cluster) error {
	_, err := d.binary.Run(ctx, "keys", "import", "--service-account-key-ring="+ringOf(cluster), d.ringFile)
	return err
}

// copyLate begins to copy the ring to the other hosts, in random order and late.
func (d *rotation) copyLate(ctx context.Context) (wait func() error) {
	others := d.live()[1:]
	errs := make([]error, len(others))
	var copies sync.WaitGroup
	for i, h := range others {
		copies.Go(func() {
			await.Sleep(ctx, rand.N(copyDelay)) // as long as a copy takes
			errs[i] = d.copyTo(ctx, h.Cluster)
		})
	}
	return func() error {
		copies.Wait()
		return errors.Join(errs...)
	}
}

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
	_, err := c.binary.Run(ctx, append(args, c.flags()...)...)
	if err == nil {
		_, err = c.active()
	}
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
func (c *clients) sign(ctx context.Context) {
	active := must.Get(c.active())
	for _, party := range c.load.Issuers {
		must.Do(await.Poll(ctx, func(ctx context.Context) error {
			token, err := party.Request(ctx)
			switch {
			case errors.Is(err, tokenload.ErrLost):
				return nil
			case err == nil && token.KeyID != active.ID:
				err = fmt.Errorf("%s: a requested token is signed with %s, want %s", party.Name, token.KeyID, active.ID)
			}
			return err
		}))
	}
	c.notef("signs", "%s %s", active.Algorithm, active.ID)
	before := c.load.Tally().Keys[active.ID]
	must.Do(await.Poll(ctx, func(context.Context) error {
		if c.clients != nil && c.load.Tally().Keys[active.ID] == before {
			return fmt.Errorf("the clients get no token that is signed with %s", active.ID)
		}
		return nil
	}))
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
func (c *clients) goOn(ctx context.Context) {
	must.Do(c.load.AwaitRounds(ctx, max(roundsPerStep, c.load.Tally().Kept+1)))
	seen := c.load.Tally()
	must.Do(seen.Err())
	c.notef("presented", "new tokens and %d kept ones, of all keys that have signed, to each kube-apiserver: none refused", seen.Kept)
}

// judge ends them and prints the results. It is an error if a request failed, a token was refused, or another
// key than those that were to sign has signed.
func (c *clients) judge() {
	if c.clients == nil {
		return
	}
	c.stop()
	seen := c.load.Tally()
	c.linef("\nTokens of the clients")
	c.linef("%8d %-32s %d failed", seen.Requested, "requested", seen.Failed)
	for _, party := range slices.Sorted(maps.Keys(seen.Accepted)) {
		c.linef("%8d %-32s %d refused", seen.Accepted[party], "accepted by "+party, seen.Refused[party])
	}
	if seen.Unanswered > 0 {
		c.linef("%8d %s", seen.Unanswered, "calls without an answer")
	}
	c.linef("\nKeys that signed them")
	others := seen.Requested - seen.Failed
	for _, key := range c.used {
		c.linef("%8d %s %s", seen.Keys[key.ID], key.Algorithm, key.ID)
		others -= seen.Keys[key.ID]
	}
	must.Not(seen.First == nil && others != 0, "%d tokens are signed with other keys than these", others)
	must.Do(seen.Err())
}
