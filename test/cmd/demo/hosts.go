// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// copyDelay is how long a copy of the ring takes to another host, at most.
const copyDelay = 500 * time.Millisecond

// host is a control-plane host: a kube-apiserver and the manager that signs for it, with a key ring of its own.
type host struct {
	*devcluster.Cluster

	name   string
	client kubernetes.Interface

	mu   sync.RWMutex // held by calls to its kube-apiserver
	lost bool
}

func (h *host) ring() string { return filepath.Join(h.Dir(), "keys", "ring.json") }

// newHost returns a host whose kube-apiserver is ready.
func newHost(name string, cluster *devcluster.Cluster) (*host, error) {
	client, err := cluster.Client()
	return &host{Cluster: cluster, name: name, client: client}, err
}

// lose ends kube-apiserver and manager of a host as a crash does, once the calls to it have ended.
func (h *host) lose(manager *devcluster.Manager) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = true
	_, err := manager.Kill()
	return errors.Join(err, h.KillAPIServer())
}

// call calls f with a host that is there, which is not lost meanwhile.
func (d *rotation) call(f func(*host) error) error {
	for {
		h := d.hosts[rand.N(len(d.hosts))]
		if called, err := h.call(f); called {
			return err
		}
	}
}

func (h *host) call(f func(*host) error) (called bool, err error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.lost {
		return false, nil
	}
	return true, f(h)
}

// join adds a host, which gets a copy of the ring before its manager and its kube-apiserver start.
func (d *rotation) join(ctx context.Context, name string) error {
	cluster, err := d.cluster.Join(ctx, name)
	if errors.Is(err, os.ErrPermission) {
		d.Notef("skipped", "only root can make another host on this machine: %s", err)
		return nil
	}
	if err != nil {
		return err
	}
	joined, err := newHost(name, cluster)
	d.hosts = append(d.hosts, joined)
	return err
}

// otherAPIServers are the flags for those that the commands do not find: their addresses are those of other loopback
// interfaces.
func (d *rotation) otherAPIServers() []string {
	var flags []string
	for _, h := range d.hosts {
		if h.Cluster != d.cluster && !h.lost {
			flags = append(flags, "--apiserver="+h.Config().Host)
		}
	}
	return flags
}

// stopHosts ends those that have joined. The first one keeps etcd.
func (d *rotation) stopHosts() error {
	var errs []error
	for _, h := range d.hosts[min(1, len(d.hosts)):] {
		errs = append(errs, h.Stop())
	}
	return errors.Join(errs...)
}

// startJoined copies the ring to a host and starts the manager there.
func (d *rotation) startJoined(ctx context.Context, cluster *devcluster.Cluster) error {
	h := &host{Cluster: cluster}
	if err := d.copyTo(ctx, h); err != nil {
		return err
	}
	manager, err := d.binary.StartManager(cluster, d.signerFlags(h)...)
	d.managers[cluster] = manager
	return err
}

// copyTo gives a host a copy of the ring of the first one.
func (d *rotation) copyTo(ctx context.Context, h *host) error {
	printed, err := exec.CommandContext(ctx, d.binary.Path, "keys", "import", "--service-account-key-ring="+h.ring(),
		(&host{Cluster: d.cluster}).ring()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("keys import: %w\n%s", err, printed)
	}
	return nil
}

// copyLate begins to copy the ring to the other hosts, in random order and late.
func (d *rotation) copyLate(ctx context.Context) (wait func() error) {
	others := d.hosts[1:]
	errs := make([]error, len(others))
	var copies sync.WaitGroup
	for i, h := range others {
		if h.lost {
			continue
		}
		copies.Go(func() {
			await.Sleep(ctx, rand.N(copyDelay)) // as long as a copy takes
			errs[i] = d.copyTo(ctx, h)
		})
	}
	return func() error {
		copies.Wait()
		return errors.Join(errs...)
	}
}
