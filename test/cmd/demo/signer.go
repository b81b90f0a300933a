// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sa-controller-manager/controllers/keyring/ring"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/must"
)

// signer is the demonstration that rotates the keys of kube-apiservers and takes nothing over: kube-controller-manager makes
// accounts and signs the tokens of Secrets, with the key that the ring begins with, and kube-apiserver has its own plugin.
type signer struct {
	*rotation

	controllers *devcluster.Manager // kube-controller-manager
	key         ring.Key            // that it signs with
	beside      *devcluster.Manager // ours, with the ring and without a socket
}

func showSigner(ctx context.Context, s *story) {
	s.linef("Rotations beside a stock kube-controller-manager and ServiceAccount plugin, on three hosts\n")
	d := &signer{rotation: newRotation(s)}
	d.serverFlags = map[string][]string{"disable-admission-plugins": nil}
	d.fills = func() (ring.Key, error) { return d.key, nil }
	d.serve = func(cluster *devcluster.Cluster) (*devcluster.Manager, error) {
		return d.binary.StartSigner(cluster, "--service-account-key-ring="+ringOf(cluster), "--external-signer-refresh-hint=1s")
	}
	d.demonstrate(ctx, d.startSigner, []step{
		{"kube-controller-manager signs with the key that the ring begins with", d.stock},
		{"Rotations 1 to 3, copied late and in random order", d.times(3)},
		{"Rotations 4 and 5", d.times(2)},
		{"A manager beside the signer is killed and restarted", d.managerRestarts},
		{"The process of the socket is killed between two signatures and restarted, while that manager runs on", d.signerRestarts},
		{"The active key has leaked", d.leaks},
		{"The key of kube-controller-manager has leaked", d.oldLeaks},
		{"One more rotation", d.times(1)},
	})
}

func (d *signer) stock(ctx context.Context) {
	d.key = must.Get(d.active())
	d.controllers = must.Get(d.cluster.StartKubeControllerManager())
	d.clientsStart(ctx)
}

func (d *signer) times(n int) func(context.Context) {
	return func(ctx context.Context) {
		for range n {
			d.rotate(ctx, "", "")
		}
	}
}

// managerRestarts: no request waits for the manager, which leaves the tokens of Secrets to kube-controller-manager.
func (d *signer) managerRestarts(ctx context.Context) {
	for range 2 {
		if d.beside != nil {
			must.Get(d.beside.Kill())
		}
		d.beside = must.Get(d.binary.StartManager(d.cluster, "--service-account-private-key-file=",
			"--service-account-key-ring="+ringOf(d.cluster), "--controllers=*,-serviceaccount-token"))
		must.Do(d.beside.Ready(ctx))
		d.notef("started", "sa-controller-manager, process %d", d.beside.PID())
	}
}

// signerRestarts: requests for tokens wait for the socket. A signature under way would fail, as in any process that is killed.
func (d *signer) signerRestarts(ctx context.Context) {
	before := d.beside.PID()
	must.Do(d.hosts[0].Between(func() error {
		_, err := d.manager.Kill()
		return err
	}))
	begun := time.Now()
	d.manager = must.Get(d.serve(d.cluster))
	d.managerReady(ctx)
	d.notef("started", "the signer, process %d: ready after %s; beside process %d", d.manager.PID(), rounded(time.Since(begun)), before)
	d.signBoth(ctx)
	for _, manager := range []*devcluster.Manager{d.manager, d.beside} { // that one is the same process still
		metrics := must.Get(manager.Metrics(ctx))
		status := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", manager.PID())))
		_, anonymous, _ := strings.Cut(string(status), "RssAnon:")
		d.notef("memory", "process %d: %.0f MiB resident, of which its own: %s", manager.PID(),
			metrics.Sum("process_resident_memory_bytes", nil)/(1<<20), strings.Join(strings.Fields(anonymous)[:2], " "))
	}
}

// leaks revokes the active key when all hosts have the next one, as they do after the copy that follows a rotation.
func (d *signer) leaks(ctx context.Context) {
	active := must.Get(d.active())
	d.copied(ctx)
	d.load.Keep(must.Get(d.hosts[0].Request(ctx)))
	d.revoked(ctx, active.ID, "")
	d.copied(ctx)
	d.signBoth(ctx)
}

// copied returns once every host uses the ring of the first one.
func (d *signer) copied(ctx context.Context) {
	must.Do(d.copyLate(ctx)())
	state := must.Get(ring.At(d.ringFile).Read())
	must.Do(await.Poll(ctx, func(ctx context.Context) error {
		for _, manager := range d.managers {
			metrics, err := manager.Metrics(ctx)
			if err != nil {
				return err
			}
			if has := metrics.Sum("sacm_key_ring_generation", nil); has != float64(state.Generation) {
				return fmt.Errorf("a host has generation %v, want %d", has, state.Generation)
			}
		}
		return nil
	}))
}

// oldLeaks does what the command says: another key file, and a restart.
func (d *signer) oldLeaks(ctx context.Context) {
	leaked := d.key.ID
	says := "signs the tokens of Secrets with key " + leaked + ", which is revoked"
	d.revoked(ctx, leaked, says)
	must.Do(d.refused(d.keys(ctx, "list"), says))
	pki := filepath.Join(d.cluster.Dir(), "pki")
	must.Do(os.Mkdir(pki, 0o700))
	must.Get(d.binary.Run(ctx, "keys", "export", "--kubeadm="+pki, "--service-account-key-ring="+d.ringFile))
	must.Get(d.controllers.Stop())
	d.controllers = must.Get(d.cluster.StartKubeControllerManager("--service-account-private-key-file=" + filepath.Join(pki, "sa.key")))
	d.key = must.Get(d.active())
	must.Do(d.keys(ctx, "revoke "+leaked+" --yes"))
	d.copied(ctx)
	d.signBoth(ctx)
}
