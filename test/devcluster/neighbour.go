// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// Join starts another kube-apiserver on the same etcd, with the same files and flags, on
// a host of its own: its hostname is the given name, and its loopback interface is another
// one, so that what listens on 127.0.0.1 here does not listen there. The Cluster that it
// returns is that host. Its clients work from here, and managers that are started beside
// it run there.
//
// It is an error that is os.ErrPermission if the process may not make such a host. The
// result has to be stopped before c, which keeps etcd.
func (c *Cluster) Join(ctx context.Context, name string) (*Cluster, error) {
	made, err := newHost(name)
	if err != nil {
		return nil, err
	}
	joined := &Cluster{
		options: c.options, dir: c.path(name), joined: true, host: made,
		etcdPort: c.etcdPort, etcdPeerPort: c.etcdPeerPort, etcd: c.etcd,
		servingCA: c.servingCA, clientCA: c.clientCA, proxyCA: c.proxyCA,
	}
	joined.options.APIServerFlags = maps.Clone(c.options.APIServerFlags)
	if err := joined.join(ctx, c); err != nil {
		return nil, errors.Join(fmt.Errorf("start a control plane on host %s: %w", name, err), joined.Stop())
	}
	return joined, nil
}

// join makes what it needs to start, which is the files of the first one, a port, and an
// identity for clients, and starts.
func (c *Cluster) join(ctx context.Context, first *Cluster) (err error) {
	if err := c.copyFiles(first.dir); err != nil {
		return err
	}
	if c.apiServerPort, err = FreePort(); err != nil {
		return err
	}
	if c.admin, err = c.writeIdentity(c.Kubeconfig(), "devcluster-admin", "system:masters"); err != nil {
		return err
	}
	if err := errors.Join(c.host.forward(c.etcdPort, c.host, nil), c.host.forward(c.apiServerPort, nil, c.host)); err != nil {
		return err
	}
	if c.options.BeforeAPIServer != nil {
		if err := c.options.BeforeAPIServer(c); err != nil {
			return err
		}
	}
	return c.StartAPIServer(ctx)
}

// copyFiles copies keys and certificates, which all hosts of a control plane share.
func (c *Cluster) copyFiles(from string) error {
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	for _, pattern := range []string{"*.crt", "*.key"} {
		files, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(c.path(filepath.Base(file)), content, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
