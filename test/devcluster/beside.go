// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
)

// Beside starts another kube-apiserver on the same etcd, with the same keys and
// certificates, and on this machine: what Join does on a host of its own. The given flags
// are laid over those of c. Both show the same objects, and differ in what the flags say.
//
// The result has to be stopped before c, which keeps etcd.
func (c *Cluster) Beside(ctx context.Context, name string, flags map[string][]string) (*Cluster, error) {
	beside := c.another(name)
	for name, values := range flags {
		beside.SetAPIServerFlag(name, values...)
	}
	err := beside.prepare(c)
	if err == nil {
		err = beside.StartAPIServer(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start kube-apiserver %s: %w", name, err), beside.Stop())
	}
	return beside, nil
}
