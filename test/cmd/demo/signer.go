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

	"sa-controller-manager/controllers/keyring/ring"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// signer is the demonstration that rotates the keys of kube-apiservers and takes nothing over: kube-controller-manager makes
// accounts and signs the tokens of Secrets, with the key that the ring begins with, and kube-apiserver has its own plugin.
type signer struct {
	*rotation

	controllers *devcluster.Manager // kube-controller-manager
	key         ring.Key            // that it signs with
	beside      *devcluster.Manager // ours, with the ring and without a socket
}

func showSigner(ctx context.Context, s *story) error {
	s.linef("Rotations beside a stock kube-controller-manager and ServiceAccount plugin, on three hosts\n")
	d := &signer{rotation: newRotation(s)}
	d.serverFlags = map[string][]string{"disable-admission-plugins": nil}
	d.fills = func() (ring.Key, error) { return d.key, nil }
	d.serve = func(cluster *devcluster.Cluster) (*devcluster.Manager, error) {
		return d.binary.StartSigner(cluster, "--service-account-key-ring="+ringOf(cluster), "--external-signer-refresh-hint=1s")
	}
	return d.demonstrate(ctx, d.startSigner, []step{
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

func (d *signer) stock(ctx context.Context) (err error) {
	if d.key, err = d.active(); err != nil {
		return err
	}
	if d.controllers, err = d.cluster.StartKubeControllerManager(); err != nil {
		return err
	}
	return d.clientsStart(ctx)
}

func (d *signer) times(n int) func(context.Context) error {
	return func(ctx context.Context) error {
		for range n {
			if err := d.rotate(ctx, "", ""); err != nil {
				return err
			}
		}
		return nil
	}
}

// managerRestarts: no request waits for the manager, which leaves the tokens of Secrets to kube-controller-manager.
func (d *signer) managerRestarts(ctx context.Context) (err error) {
	for range 2 {
		if d.beside != nil {
			_, err = d.beside.Kill()
		}
		if err == nil {
			d.beside, err = d.binary.StartManager(d.cluster, "--service-account-private-key-file=",
				"--service-account-key-ring="+ringOf(d.cluster),
				"--controllers=*,-serviceaccount-token")
		}
		if err == nil {
			err = d.beside.Ready(ctx)
		}
		if err != nil {
			return err
		}
		d.notef("started", "sa-controller-manager, process %d", d.beside.PID())
	}
	return nil
}

// signerRestarts: requests for tokens wait for the socket. A signature under way would fail, as in any process that is killed.
func (d *signer) signerRestarts(ctx context.Context) error {
	before := d.beside.PID()
	if err := d.hosts[0].Between(func() error {
		_, err := d.manager.Kill()
		return err
	}); err != nil {
		return err
	}
	begun := time.Now()
	var err error
	if d.manager, err = d.serve(d.cluster); err == nil {
		err = d.managerReady(ctx)
	}
	if err != nil {
		return err
	}
	d.notef("started", "the signer, process %d: ready after %s; beside process %d", d.manager.PID(), rounded(time.Since(begun)), before)
	if err := d.signBoth(ctx); err != nil {
		return err
	}
	for _, manager := range []*devcluster.Manager{d.manager, d.beside} { // that one is the same process still
		metrics, err := manager.Metrics(ctx)
		if err != nil {
			return err
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", manager.PID()))
		if err != nil {
			return err
		}
		_, anonymous, _ := strings.Cut(string(status), "RssAnon:")
		d.notef("memory", "process %d: %.0f MiB resident, of which its own: %s", manager.PID(),
			metrics.Sum("process_resident_memory_bytes", nil)/(1<<20), strings.Join(strings.Fields(anonymous)[:2], " "))
	}
	return nil
}

// leaks revokes the active key when all hosts have the next one, as they do after the copy that follows a rotation.
func (d *signer) leaks(ctx context.Context) error {
	active, err := d.active()
	if err == nil {
		err = d.copied(ctx)
	}
	if err != nil {
		return err
	}
	token, err := d.hosts[0].Request(ctx)
	if d.load.Keep(token); err == nil {
		err = d.revoked(ctx, active.ID, "")
	}
	if err == nil {
		err = d.copied(ctx)
	}
	return errors.Join(err, d.signBoth(ctx))
}

// copied returns once every host uses the ring of the first one.
func (d *signer) copied(ctx context.Context) error {
	if err := d.copyLate(ctx)(); err != nil {
		return err
	}
	state, err := ring.At(d.ringFile).Read()
	if err != nil {
		return err
	}
	return await.Poll(ctx, func(ctx context.Context) error {
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
	})
}

// oldLeaks does what the command says: another key file, and a restart.
func (d *signer) oldLeaks(ctx context.Context) error {
	leaked := d.key.ID
	says := "signs the tokens of Secrets with key " + leaked + ", which is revoked"
	if err := d.revoked(ctx, leaked, says); err != nil {
		return err
	}
	if err := d.refused(d.keys(ctx, "list"), says); err != nil {
		return err
	}
	pki := filepath.Join(d.cluster.Dir(), "pki")
	if err := os.Mkdir(pki, 0o700); err != nil {
		return err
	}
	if _, err := d.binary.Run(ctx, "keys", "export", "--kubeadm="+pki, "--service-account-key-ring="+d.ringFile); err != nil {
		return err
	}
	_, err := d.controllers.Stop()
	if err == nil {
		d.controllers, err = d.cluster.StartKubeControllerManager("--service-account-private-key-file=" + filepath.Join(pki, "sa.key"))
	}
	if err == nil {
		d.key, err = d.active()
	}
	if err != nil {
		return err
	}
	return errors.Join(d.keys(ctx, "revoke "+leaked+" --yes"), d.copied(ctx), d.signBoth(ctx))
}
