// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
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
