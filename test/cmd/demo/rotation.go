// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/controllers/keyring/ring"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/must"
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

func showRotation(ctx context.Context, s *story) {
	s.linef("Rotations of service account keys in a cluster of three hosts that is in use\n")
	d := newRotation(s)
	d.demonstrate(ctx, d.startSigner, []step{
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
		func(ctx context.Context) {
			for n := from; n < from+kindEvery; n++ {
				next := ""
				if n%kindEvery == 0 {
					next = "--algorithm=" + []string{"RSA-2048", "P-256"}[n/kindEvery%2]
				}
				d.rotate(ctx, next, "")
			}
		},
	}
}

func (d *rotation) clientsStart(ctx context.Context) {
	must.Get(await.ServiceAccounts(ctx, d.client, metav1.NamespaceDefault, await.Named[*corev1.ServiceAccount](account)))
	d.signBoth(ctx)
	d.start()
	d.notef("started", "%d clients that request tokens and present new and old ones, at all hosts", presenters)
}

// signBoth is sign, and the same of the token of a new Secret, which is presented from then on.
func (d *rotation) signBoth(ctx context.Context) {
	d.sign(ctx)
	d.secrets++
	name := fmt.Sprintf("token-%d", d.secrets)
	d.createTokenSecret(ctx, metav1.NamespaceDefault, name, account)
	secret := d.awaitFilled(ctx, metav1.NamespaceDefault, name)
	key := must.Get(d.fills())
	legacy, err := tokenload.Of(tokenOf(secret))
	must.Not(err != nil || legacy.KeyID != key.ID, "secret %s is signed with %s, want %s: %w", name, legacy.KeyID, key.ID, err)
	// kube-apiserver accepts the token of a Secret once its cache has the Secret.
	for _, h := range d.live() {
		must.Do(await.Poll(ctx, func(ctx context.Context) error { return h.Review(ctx, legacy) }))
	}
	d.load.Keep(legacy)
}

func (d *rotation) tooEarly(ctx context.Context) {
	must.Do(d.refused(d.keys(ctx, "rotate"), "copies of the key set may be without key"))
	d.signBoth(ctx)
}

// rotate replaces the next key first, if it is to be another one, has the next key sign, and verifies
// that it does. The hosts get the copy of what was changed before while the command waits.
func (d *rotation) rotate(ctx context.Context, next, flags string) {
	if next != "" {
		must.Do(d.keys(ctx, "next "+next))
	}
	before := must.Get(d.active())
	copied := d.copyLate(ctx)
	err := d.keys(ctx, "rotate --wait"+cacheAge+d.without+flags)
	must.Do(errors.Join(err, copied()))
	must.Not(must.Get(d.active()).ID == before.ID, "%s still signs", before.ID)
	d.signBoth(ctx)
}

func (d *rotation) rolledBack(ctx context.Context) {
	previous := d.used[len(d.used)-2]
	// The last rotation has changed the kind, so that rollback withdraws the next key.
	must.Do(errors.Join(d.keys(ctx, "rollback"), d.keys(ctx, "next")))
	must.Not(must.Get(d.active()).ID != previous.ID, "the previous key, %s, does not sign", previous.ID)
	d.signBoth(ctx)
}

func (d *rotation) hostIsLost(ctx context.Context) {
	if len(d.hosts) < 3 {
		d.notef("skipped", "there is one host")
		return
	}
	lost := d.hosts[2]
	must.Do(lost.Lose(func() error {
		_, err := d.managers[lost.Cluster].Kill()
		return errors.Join(err, lost.KillAPIServer())
	}))
	d.notef("lost", "kube-apiserver and sa-controller-manager of %s", lost.Name)
	if err := d.copyLate(ctx)(); err != nil { // the host that is left must not be what is missing
		must.Do(err)
	}
	d.without = " --without-host=" + lost.Name
	must.Do(await.Poll(ctx, func(ctx context.Context) error {
		err := d.try(ctx, "rotate"+cacheAge)
		if err != nil && !strings.Contains(err.Error(), d.without[1:]) {
			return err // it may be too early, too
		}
		return d.refused(err, d.without[1:])
	}))
	d.rotate(ctx, "", "")
}

// revoked revokes a key that has leaked. left is what the command says is left to do, "" for nothing.
func (d *rotation) revoked(ctx context.Context, leaked, left string) {
	dead := d.load.Forget(leaked)
	// The other hosts get no copy: they read of the revocation in the published ring.
	begun := time.Now()
	done := make(chan error, 1) // the command goes on to find out whether the host that is left out lives
	go func() { done <- d.keys(ctx, "revoke "+leaked+" --yes"+d.without) }()
	for _, h := range d.live() {
		for _, token := range dead {
			must.Do(await.Poll(ctx, func(ctx context.Context) error {
				if h.Review(ctx, token) == nil {
					return fmt.Errorf("%s accepts a token of %s", h.Name, token.KeyID)
				}
				return nil
			}))
		}
	}
	took := time.Since(begun)
	err := <-done
	if left != "" {
		err = d.refused(err, left)
	}
	must.Do(err)
	d.notef("revoked", "%s: %d hosts refuse %d tokens of it after %s", leaked, len(d.live()), len(dead), rounded(took))
	must.Not(len(dead) < 2 || took > refusedWithin, "the hosts have refused %d tokens of %s after %s, want two after %s at most",
		len(dead), leaked, rounded(took), refusedWithin)
}
