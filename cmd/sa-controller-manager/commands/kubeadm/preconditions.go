// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"context"
	"fmt"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/identity"
)

// ensureIdentity creates the identity of our process and applies its permissions before it starts, with
// the administrator's rights. Our Pod does so too, but cannot without the key of the CA. With an
// external CA the error says what the operator has to do.
func (c *Config) ensureIdentity(o *observed) cli.Look {
	return func(ctx context.Context) error {
		i := identity.NewConfig()
		i.CertDir, i.Dir, i.From = c.onNode(cmp.Or(o.certDir, i.CertDir)), c.onNode(i.Dir), c.onNode(i.From)
		i.Say, i.Warn = c.Out, c.Out
		if err := identity.Ensure(ctx, i); err != nil {
			return cli.Permanent(fmt.Errorf("the identity of our process: %w", err))
		}
		return identity.Apply(ctx, c.Client.CoreV1().RESTClient())
	}
}

// versionSupported asks the running kube-apiserver for its version if the tag of its image has none:
// the image may be named by its digest, or have a tag of the operator's own.
func (c *Config) versionSupported(o *observed) cli.Look {
	return func(context.Context) error {
		m, err := o.parsed(apiServerComponent())
		if err != nil {
			return cli.Permanent(err)
		}
		if _, _, tagged := version(m.Image()); tagged {
			return nil
		}
		running, err := c.Client.Discovery().ServerVersion()
		if err != nil {
			return fmt.Errorf("ask kube-apiserver for its version: %w", err)
		}
		signs, err := c.signs(o)
		err = cmp.Or(err, supported(running.GitVersion))
		if signs {
			err = cmp.Or(err, knowsSigner(running.GitVersion))
		}
		if c.static(o) {
			err = cmp.Or(err, knowsStatic(running.GitVersion))
		}
		if err != nil {
			return cli.Permanent(fmt.Errorf("%s: %w", apiServer, err))
		}
		return nil
	}
}

// checkKeyRing refuses to rewrite our manifest without its key ring. A rewrite takes nothing from the
// existing manifest, and the process would sign with a key file that may have missed a rotation. An
// empty flag gives the key ring up on purpose. A key file does not, because the command that wrote the
// first manifest may have named one.
func (c *Config) checkKeyRing(o *observed) error {
	ring := ownFlag(o.manager, keyRingFlag)
	if ring == "" || !c.Rewrite || !c.includes(StepManager) || len(ownFlags(o.rendered, keyRingFlag)) > 0 {
		return nil
	}
	return fmt.Errorf("%s has %s, and the rewrite would drop it; to keep it add --extra-arg=%s --extra-arg=%s; to sign with a key file again, which has to hold the key that signs now, add --extra-arg=%s",
		c.manifest(manager), assign(keyRingFlag, ring), assign(keyFlag, ""), assign(keyRingFlag, ring), assign(keyRingFlag, ""))
}
