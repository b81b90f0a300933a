// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/nodefile"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/signing/ring"
)

// Handback undoes Takeover.
func Handback(ctx context.Context, c Config) error {
	o, err := c.observe()
	if err != nil {
		return err
	}
	return c.run(ctx, o, c.planHandback)
}

// planHandback returns the steps of a handback. None of them waits for our process, which may be what
// is broken.
func (c *Config) planHandback(o *observed) ([]step, error) {
	changes, err := c.changes(o)
	if err != nil {
		return nil, err
	}
	kcm := step{name: StepControllerManager, summary: "kube-controller-manager has its ServiceAccount controllers again"}
	api := step{name: StepAPIServer, summary: "kube-apiserver has its ServiceAccount plugin again"}
	if err := c.planGiveBack(o, component.ForAPIServer(changes, o.apiServer().SigningKeys(o.own())), &api); err != nil {
		return nil, err
	}
	if c.includes(StepControllerManager) {
		if err := c.planGiveBack(o, component.ForControllerManager(), &kcm); err != nil {
			return nil, err
		}
	}
	if o.manager == nil && len(api.writes) == 0 && len(kcm.writes) == 0 {
		api.notes = append(api.notes, "This node is not taken over: no file is changed.")
	}
	return c.selectSteps(api, kcm, step{
		name:    StepWebhook,
		summary: "the webhook is unregistered",
		guards:  []cli.Check{c.pluginOn, c.isNode(o)},
		waits:   []cli.Check{c.unregister(o)},
	}, step{
		name:    StepManager,
		summary: "sa-controller-manager ends, and its webhook configurations are deleted",
		guards: []cli.Check{
			c.unused, func(ctx context.Context) error { return registration.IsInactive(ctx, c.Client) }, c.isNode(o),
		},
		writes: nodefile.Append(nil, c.manifest(manager), o.manager, nil),
		waits:  []cli.Check{c.managerGone(o), c.deleteRegistration, c.unrestricted, c.forgetRing},
	}), nil
}

// forgetRing has no rotation on other nodes wait for the key ring of this one.
func (c *Config) forgetRing(ctx context.Context) error {
	host, err := consistency.HostName()
	if err == nil {
		err = consistency.Forget(ctx, c.Client, host)
	}
	if ring.IsDone(err) {
		return nil
	}
	return err
}

// planGiveBack plans the writes and waits of a handback's step.
func (c *Config) planGiveBack(o *observed, one component.Component, s *step) error {
	f := o.files[one.Name]
	before, err := f.Parse()
	if err != nil {
		return fmt.Errorf("%w; correct it by hand, %s may have the original", err, c.backup(one.Name))
	}
	after, notes, err := one.Handback(f, before, cmp.Or(c.SigningKeyFile, component.OwnFlag(o.own(), component.KeyFlag)))
	if err != nil {
		return err
	}
	if c.includes(one.Name) {
		check := c.checkKeyFiles
		if c.NewKey {
			check = func(o *observed, name string, after *staticpod.Manifest) ([]string, error) {
				return c.planNewKey(o, name, after, s)
			}
		}
		problems, err := check(o, one.Name, after)
		if err != nil {
			return err
		}
		notes = append(notes, problems...)
	}
	switch gone := before != after && one.Name == component.APIServer && !o.ownIsThere(); {
	case gone && o.managerBackup == nil:
		notes = append(notes, "Our manifest is gone or damaged, so the keys in use are unknown "+
			"and are not compared with the key files that come back.")
	case gone:
		notes = append(notes, "Our manifest is gone or damaged. The keys in use are taken from "+c.backup(manager)+".")
	}
	s.notes = notes
	s.advice = "Look at the log of " + one.Name + " (crictl ps -a; crictl logs) and of the kubelet.\n" + again + "."
	s.writes = nodefile.Append(s.writes, c.manifest(one.Name), f.Manifest, after.Bytes())
	s.writes = nodefile.Append(s.writes, c.patch(one.Name), f.Patch, nil)
	s.waits = []cli.Check{c.runs(one.Name, after.Command())}
	if one.Name != component.APIServer {
		return nil
	}
	copied, err := nodefile.Read(c.onNode(component.AdmissionConfigFile))
	if bytes.HasPrefix(copied, []byte(copyHead)) && !bytes.Contains(after.Bytes(), []byte(component.AdmissionConfigFile)) {
		s.writes = nodefile.Append(s.writes, c.onNode(component.AdmissionConfigFile), copied, nil)
	}
	return err
}
