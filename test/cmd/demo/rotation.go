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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/controllers/keyring/ring"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/tokenload"
)

const (
	// cacheAge is how long relying parties keep the key set here. The clients of the demonstration ask
	// kube-apiserver, which fetches keys that it does not know.
	cacheAge = " --cache-age=2s"
	// kindEvery is how many rotations there are in a row, of which the last one changes the kind of the key.
	kindEvery = 4
	// refusedWithin is the promise of docs/rotation.md, for a key that has leaked.
	refusedWithin = 12 * time.Second
)

// rotation is the demonstration that rotates the keys of a cluster in use, on three hosts. Each
// kube-apiserver has its tokens signed by the manager of its host, whose keys are in a key ring. The operator's
// commands change the ring of the first host, of which the others get copies, late. Meanwhile clients request
// tokens and present old and new ones at all hosts, and none may fail.
type rotation struct {
	*clients

	hosts    []*host // the first one is story.cluster
	managers map[*devcluster.Cluster]*devcluster.Manager

	// serve starts the process that signs on a host, and fills is the key that a token controller signs with.
	serve func(*devcluster.Cluster) (*devcluster.Manager, error)
	fills func() (ring.Key, error)

	serverFlags map[string][]string // of kube-apiserver

	keyFlags []string // of the manager and of the commands, about keys outside of the ring
	without  string   // the flag for a host that is lost
	secrets  int      // that were made
}

func showRotation(ctx context.Context, s *story) error {
	s.linef("Rotations of service account keys in a cluster of three hosts that is in use\n")
	d := newRotation(s)
	return d.demonstrate(ctx, d.startSigner, []step{
		{"Clients request and use tokens", d.clientsStart},
		{"Too early, the command refuses", d.tooEarly},
		d.rotations(1), d.rotations(5),
		{"The last rotation is rolled back", d.rolledBack},
		d.rotations(9),
		{"A host is lost", d.hostIsLost},
		d.rotations(13), d.rotations(17),
	})
}

func newRotation(s *story) *rotation {
	d := &rotation{clients: &clients{story: s}, managers: map[*devcluster.Cluster]*devcluster.Manager{}}
	d.flags = func() []string { return append(slices.Clone(d.keyFlags), d.apiServers()...) }
	d.serve = func(cluster *devcluster.Cluster) (*devcluster.Manager, error) {
		return d.binary.StartManager(cluster, d.signerFlags(cluster)...)
	}
	d.fills = d.active
	return d
}

// rotations is a step of so many in a row that the last one changes the kind of the key.
func (d *rotation) rotations(from int) step {
	return step{
		fmt.Sprintf("Rotations %d to %d, copied late and in random order", from, from+kindEvery-1),
		func(ctx context.Context) error {
			for n := from; n < from+kindEvery; n++ {
				next := ""
				if n%kindEvery == 0 {
					next = "--algorithm=" + []string{"RSA-2048", "P-256"}[n/kindEvery%2]
				}
				if err := d.rotate(ctx, next, ""); err != nil {
					return fmt.Errorf("rotation %d: %w", n, err)
				}
			}
			return nil
		},
	}
}

func (d *rotation) clientsStart(ctx context.Context) error {
	if _, err := await.ServiceAccounts(ctx, d.client, metav1.NamespaceDefault, await.Named[*corev1.ServiceAccount](account)); err != nil {
		return err
	}
	if err := d.signBoth(ctx); err != nil {
		return err
	}
	d.start()
	d.notef("started", "%d clients that request tokens and present new and old ones, at all hosts", presenters)
	return nil
}

// signBoth is sign, and the same of the token of a new Secret, which is presented from then on.
func (d *rotation) signBoth(ctx context.Context) error {
	if err := d.sign(ctx); err != nil {
		return err
	}
	d.secrets++
	name := fmt.Sprintf("token-%d", d.secrets)
	if err := d.createTokenSecret(ctx, metav1.NamespaceDefault, name, account); err != nil {
		return err
	}
	secret, err := d.awaitFilled(ctx, metav1.NamespaceDefault, name)
	if err != nil {
		return err
	}
	key, err := d.fills()
	if err != nil {
		return err
	}
	legacy, err := tokenload.Of(tokenOf(secret))
	if err != nil || legacy.KeyID != key.ID {
		return fmt.Errorf("secret %s is signed with %s, want %s: %w", name, legacy.KeyID, key.ID, err)
	}
	// kube-apiserver accepts the token of a Secret once its cache has the Secret.
	for _, h := range d.live() {
		if err := await.Poll(ctx, func(ctx context.Context) error { return h.Review(ctx, legacy) }); err != nil {
			return err
		}
	}
	d.load.Keep(legacy)
	return nil
}

func (d *rotation) tooEarly(ctx context.Context) error {
	if err := d.refused(d.keys(ctx, "rotate"), "copies of the key set may be without key"); err != nil {
		return err
	}
	return d.signBoth(ctx)
}

// rotate replaces the next key first, if it is to be another one, has the next key sign, and verifies
// that it does. The hosts get the copy of what was changed before while the command waits.
func (d *rotation) rotate(ctx context.Context, next, flags string) error {
	if next != "" {
		if err := d.keys(ctx, "next "+next); err != nil {
			return err
		}
	}
	before, err := d.active()
	if err != nil {
		return err
	}
	copied := d.copyLate(ctx)
	err = d.keys(ctx, "rotate --wait"+cacheAge+d.without+flags)
	if err := errors.Join(err, copied()); err != nil {
		return err
	}
	if active, err := d.active(); err != nil || active.ID == before.ID {
		return fmt.Errorf("%s still signs: %w", before.ID, err)
	}
	return d.signBoth(ctx)
}

func (d *rotation) rolledBack(ctx context.Context) error {
	previous := d.used[len(d.used)-2]
	// The last rotation has changed the kind, so that rollback withdraws the next key.
	if err := errors.Join(d.keys(ctx, "rollback"), d.keys(ctx, "next")); err != nil {
		return err
	}
	if active, err := d.active(); err != nil || active.ID != previous.ID {
		return fmt.Errorf("%s signs, not the previous one, %s: %w", active.ID, previous.ID, err)
	}
	return d.signBoth(ctx)
}

func (d *rotation) hostIsLost(ctx context.Context) error {
	if len(d.hosts) < 3 {
		d.notef("skipped", "there is one host")
		return nil
	}
	lost := d.hosts[2]
	if err := lost.Lose(func() error {
		_, err := d.managers[lost.Cluster].Kill()
		return errors.Join(err, lost.KillAPIServer())
	}); err != nil {
		return err
	}
	d.notef("lost", "kube-apiserver and sa-controller-manager of %s", lost.Name)
	if err := d.copyLate(ctx)(); err != nil { // the host that is left must not be what is missing
		return err
	}
	d.without = " --without-host=" + lost.Name
	if err := await.Poll(ctx, func(ctx context.Context) error {
		err := d.try(ctx, "rotate"+cacheAge)
		if err != nil && !strings.Contains(err.Error(), d.without[1:]) {
			return err // it may be too early, too
		}
		return d.refused(err, d.without[1:])
	}); err != nil {
		return err
	}
	return d.rotate(ctx, "", "")
}

// revoked revokes a key that has leaked. left is what the command says is left to do, "" for nothing.
func (d *rotation) revoked(ctx context.Context, leaked, left string) error {
	dead := d.load.Forget(leaked)
	// The other hosts get no copy: they read of the revocation in the published ring.
	begun := time.Now()
	done := make(chan error, 1) // the command goes on to find out whether the host that is left out lives
	go func() { done <- d.keys(ctx, "revoke "+leaked+" --yes"+d.without) }()
	for _, h := range d.live() {
		for _, token := range dead {
			if err := await.Poll(ctx, func(ctx context.Context) error {
				if h.Review(ctx, token) == nil {
					return fmt.Errorf("%s accepts a token of %s", h.Name, token.KeyID)
				}
				return nil
			}); err != nil {
				return err
			}
		}
	}
	took := time.Since(begun)
	err := <-done
	if left != "" {
		err = d.refused(err, left)
	}
	if err != nil {
		return err
	}
	d.notef("revoked", "%s: %d hosts refuse %d tokens of it after %s", leaked, len(d.live()), len(dead), rounded(took))
	if len(dead) < 2 || took > refusedWithin {
		return fmt.Errorf("the hosts have refused %d tokens of %s after %s, want two after %s at most", len(dead), leaked, rounded(took),
			refusedWithin)
	}
	return nil
}

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
func (d *rotation) demonstrate(ctx context.Context, startSigner func(context.Context) error, steps []step) (err error) {
	if d.binary, err = devcluster.FindBinary(ctx); err != nil {
		return err
	}
	defer func() {
		for _, h := range d.hosts[min(1, len(d.hosts)):] { // the first one keeps etcd
			err = errors.Join(err, h.Stop())
		}
	}()
	if err := d.startHosts(ctx, startSigner); err != nil {
		return err
	}
	return errors.Join(d.show(ctx, steps), d.judge())
}

func (d *rotation) startHosts(ctx context.Context, startSigner func(context.Context) error) error {
	if err := d.startCluster(ctx, devcluster.Options{
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
	}); err != nil {
		return err
	}
	if err := d.managerReady(ctx); err != nil {
		return err
	}
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
		if err != nil {
			return err
		}
		party, err := tokenload.NewParty(name, cluster)
		d.hosts, parties = append(d.hosts, &host{cluster, party}), append(parties, party)
		if err != nil {
			return err
		}
	}
	d.load = tokenload.New(d.ringFile, parties, parties)
	d.ready("%d hosts, each with sa-controller-manager, a key ring of its own and kube-apiserver, for which it signs", len(d.hosts))
	return nil
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
	if err := seen.Err(); err != nil {
		return err
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
	if seen.Unanswered > 0 {
		c.linef("%8d %s", seen.Unanswered, "calls without an answer")
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
	return seen.Err()
}
