// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"fmt"
	"slices"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
)

// step is one thing to do and to wait for.
type step struct {
	name string
	// notes are what the user has to know before it is done.
	notes []string
	// brings is what it does, and advice what to do if it does not come, for the user.
	brings, advice string
	// guards are what must be so before anything is written, awaited one after the other.
	guards []cli.Look
	writes []write
	// comes are what is awaited then, and back is written if that does not come.
	comes []cli.Look
	back  []write
}

// write makes a file have other content; nil is no file.
type write struct {
	path          string
	before, after []byte
}

// wanted appends what is not so already.
func wanted(writes []write, path string, before, after []byte) []write {
	if before != nil && after != nil && bytes.Equal(before, after) || before == nil && after == nil {
		return writes
	}
	return append(writes, write{path, before, after})
}

// planTakeover decides what a takeover does. It refuses before the first step if a later
// one could not be done.
func (c *Config) planTakeover(o *observed) ([]step, error) {
	if err := c.keepsKeyRing(o); err != nil {
		return nil, err
	}
	own := step{
		name:   StepManager,
		brings: "sa-controller-manager runs beside the control plane, until it is ready and kube-apiserver calls its webhook",
		advice: "Nothing of the control plane has been changed. Look at the log of the Pod kube-system/" + manager + "-" + c.Node +
			" (kubectl logs, or crictl logs on the node).\n" + again + "; kubeadm handback takes it out.",
		guards: []cli.Look{c.versionSupported(o), c.mayRegister(o)},
		comes:  []cli.Look{c.managerWorks(o)},
	}
	kcm := step{
		name:   StepControllerManager,
		brings: "kube-controller-manager leaves ServiceAccounts and their tokens to it",
		advice: "Look at the log of the Pod kube-system/" + controllerManager + "-" + c.Node + ". kube-apiserver has not been changed.\n" +
			again + "; kubeadm handback puts everything back.",
		// Steps can be chosen, and time may have passed since the first one.
		guards: []cli.Look{c.versionSupported(o), c.managerReady(o)},
	}
	api := step{
		name:   StepAPIServer,
		brings: "kube-apiserver leaves the ServiceAccounts of Pods to its webhook",
		advice: "Look at the log of " + apiServer + " (crictl ps -a; crictl logs).\n" + again +
			"; kubeadm handback puts everything back, also while the API is away. Its former manifest is " + c.backup(apiServer) + ".",
		guards: []cli.Look{c.versionSupported(o), c.socketServed(o), c.managerReady(o), c.bound},
	}
	if c.writesOwn(o) {
		own.notes = o.kcm.notes()
	}
	if c.writesOwn(o) && !bytes.Equal(o.manager, o.rendered) {
		own.writes = wanted(nil, c.manifest(manager), o.manager, o.rendered)
		own.guards = append(own.guards, c.keyAccepted(o), c.rootCAPublished(o), c.ensureIdentity(o))
	}
	if o.manager != nil && len(own.writes) > 0 {
		own.writes = append(wanted(nil, c.backup(manager), o.backups[manager], o.manager), own.writes...)
		own.back = []write{{c.manifest(manager), o.rendered, o.manager}}
		own.advice = "Look at the log of the Pod kube-system/" + manager + "-" + c.Node + " (kubectl logs, or crictl logs on the node).\n" + again + "."
	}
	all, err := c.components(o)
	if err != nil {
		return nil, err
	}
	if err := c.runHere(o); err != nil {
		return nil, err
	}
	for i, s := range []*step{&kcm, &api} {
		if err := c.takes(o, all[i], s); err != nil {
			return nil, err
		}
	}
	return c.chosen(own, kcm, api), nil
}

// takes plans what a step of a takeover writes, and what is awaited then.
func (c *Config) takes(o *observed, one component, s *step) error {
	before, err := o.parsed(one)
	if err != nil {
		return err
	}
	after, err := edit(before, one.out)
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", one.name, err)
	}
	first := o.original(one, before)
	if !bytes.Equal(before.Bytes(), after.Bytes()) {
		s.writes = wanted(s.writes, c.backup(one.name), o.backups[one.name], first.Bytes())
	}
	patch, err := o.patch(one, first, before)
	if err != nil {
		return err
	}
	// The patch comes first: if all ends here, kubeadm upgrade does the rest.
	s.writes = wanted(s.writes, c.patch(one.name), o.patches[one.name], patch)
	s.writes = wanted(s.writes, c.manifest(one.name), before.Bytes(), after.Bytes())
	s.comes = []cli.Look{c.runs(one.name, after.Command())}
	return nil
}

// original is a component's manifest as it was before any takeover: the backup, if a
// takeover of some kind has made of it what there is now.
func (o *observed) original(one component, now *staticpod.Manifest) *staticpod.Manifest {
	backup, err := staticpod.Parse(o.backups[one.name], one.name)
	if err != nil {
		return now
	}
	ways := []component{one}
	if one.name == apiServer {
		ways = append(ways, apiServerComponent())
	}
	for _, way := range ways {
		if taken, err := edit(backup, way.out); err == nil && bytes.Equal(taken.Bytes(), now.Bytes()) {
			return backup
		}
	}
	return now
}

func edit(m *staticpod.Manifest, decide func(*staticpod.Manifest) (staticpod.Edit, error)) (*staticpod.Manifest, error) {
	e, err := decide(m)
	if err != nil {
		return nil, err
	}
	return m.Apply(e)
}

// chosen are the steps that are to be done.
func (c *Config) chosen(steps ...step) []step {
	return slices.DeleteFunc(steps, func(s step) bool { return !c.does(s.name) })
}
