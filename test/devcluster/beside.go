// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
)

// Beside starts another kube-apiserver on the same etcd, with the same keys and
// certificates, and on this machine: what Join does on a host of its own. The given flags
// are laid over those of c. Both show the same objects, and differ in what the flags say.
//
// The result has to be stopped before c, which keeps etcd.
func (c *Cluster) Beside(ctx context.Context, name string, flags map[string][]string) (*Cluster, error) {
	beside := &Cluster{
		options: c.options, dir: c.path(name), joined: true,
		etcdPort: c.etcdPort, etcdPeerPort: c.etcdPeerPort, etcd: c.etcd,
		servingCA: c.servingCA, clientCA: c.clientCA, proxyCA: c.proxyCA,
	}
	beside.options.APIServerFlags = maps.Clone(c.options.APIServerFlags)
	for name, values := range flags {
		beside.SetAPIServerFlag(name, values...)
	}
	if err := beside.startBeside(ctx, c); err != nil {
		return nil, errors.Join(fmt.Errorf("start kube-apiserver %s: %w", name, err), beside.Stop())
	}
	return beside, nil
}

func (c *Cluster) startBeside(ctx context.Context, first *Cluster) error {
	if err := c.copyFiles(first.dir); err != nil {
		return err
	}
	var err error
	if c.apiServerPort, err = FreePort(); err != nil {
		return err
	}
	if c.admin, err = c.writeIdentity(c.Kubeconfig(), "devcluster-admin", "system:masters"); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}
