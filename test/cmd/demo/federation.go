// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sa-controller-manager/signing"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/federation"
	"sa-controller-manager/test/must"
)

// trust is the demonstration of a second cluster that trusts the first one's issuer, by the documents
// at its URL, while the keys of the first rotate. Neither may refuse a token.
type trust struct {
	*clients

	world *federation.World
	stale string // a copy of what was published before the directory was gone
}

// rotateAt is the command for a cache age in seconds.
func (d *trust) rotateAt(age int) string {
	return fmt.Sprintf("rotate --cache-age=%ds %s", age, strings.Join(d.world.RelyingFlags(), " "))
}

func showFederation(ctx context.Context, s *story) {
	s.linef("Published keys, which a second cluster verifies with while they rotate\n")
	s.binary = must.Get(devcluster.FindBinary(ctx))
	world, err := federation.Start(ctx, s.binary, 5*time.Second)
	s.ends = append(s.ends, world.Stop)
	must.Do(err)
	d := &trust{world: world}
	d.clients = &clients{story: s, load: d.world.Load, ringFile: d.world.RingFile(), flags: func() []string {
		return []string{"--kubeconfig=" + d.world.First.Kubeconfig()}
	}}
	s.manager = d.world.Manager
	s.ready("two control planes, of which the second trusts the issuer of the first, and an HTTPS server of its documents")
	must.Get(d.active()) // the key that signs first
	d.start()
	d.show(ctx, d.steps())
	d.judge()
}

func (d *trust) steps() []step {
	return []step{
		{"The second cluster accepts tokens of the first", d.published},
		{"A rotation, once every copy has the next key", d.rotates},
		{"A rotation to another algorithm", func(ctx context.Context) {
			must.Do(d.keys(ctx, "next --algorithm=P-256"))
			d.rotates(ctx)
		}},
		{"The active key has leaked", d.leaks},
		{"The directory is gone, and the next key, which is replaced, does not sign", d.unmounted},
		{"The directory is back, and a cache serves what it had before: it does not sign", func(ctx context.Context) {
			d.world.Edge.Serve(d.stale)
			d.refuses(ctx, "do not have key")
		}},
		{"The issuer's URL has our documents again", func(ctx context.Context) {
			d.world.Edge.Serve(d.world.Served())
			must.Do(d.world.AwaitPublished(ctx))
			d.rotates(ctx)
		}},
	}
}

func (d *trust) published(ctx context.Context) {
	d.notef("published", "%s%s", d.world.Edge.URL, signing.JWKSPath)
	must.Do(d.world.AwaitPublished(ctx))
}

func (d *trust) rotates(ctx context.Context) {
	must.Do(d.keys(ctx, d.rotateAt(5)+" --wait"))
	d.sign(ctx)
}

// leaks revokes the active key. The next one signs at once, and the second cluster has it.
func (d *trust) leaks(ctx context.Context) {
	d.copied(ctx)
	active := must.Get(d.active())
	must.Do(d.keys(ctx, "revoke "+active.ID+" --yes"))
	d.sign(ctx)
}

// copied returns once every copy of the key set has the next key: then a rotation is not refused for it. Nothing
// is rotated.
func (d *trust) copied(ctx context.Context) {
	must.Do(d.world.AwaitPublished(ctx))
	// The second cluster reads the documents at least once in that time.
	must.Do(d.load.AwaitRounds(ctx, 2*roundsPerStep))
}

// unmounted replaces the next key while it cannot be published, until the step has ended.
func (d *trust) unmounted(ctx context.Context) {
	// The second cluster reads the key that signs now before the directory is gone.
	d.copied(ctx)
	served, gone := d.world.Served(), filepath.Join(d.world.Dir, "gone")
	d.stale = filepath.Join(d.world.Dir, "stale")
	must.Do(errors.Join(os.CopyFS(d.stale, os.DirFS(served)), os.Rename(served, gone)))
	defer func() { must.Do(os.Rename(gone, served)) }()
	must.Do(d.keys(ctx, "next --algorithm=P-384"))
	d.refuses(ctx, "is not published by host")
}

// refuses has a command refuse to have the next key sign because of what is published, however long.
func (d *trust) refuses(ctx context.Context, reason string) {
	d.notef("command", "sa-controller-manager keys %s", d.rotateAt(0))
	var refusal error
	must.Do(await.Poll(ctx, func(ctx context.Context) error {
		// The process may not have seen the directory yet.
		if refusal = d.try(ctx, d.rotateAt(0)); refusal != nil && !strings.Contains(refusal.Error(), reason) {
			return refusal
		}
		return nil
	}))
	must.Do(d.refused(refusal, reason))
}
