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

// step is one change and the waits before and after it.
type step struct {
	name string
	// notes are for the user, before the step runs.
	notes []string
	// summary says what the step does, and advice what to do when it times out.
	summary, advice string
	// guards must succeed, in order, before anything is written.
	guards []cli.Look
	writes []write
	// waits must succeed after the writes; otherwise rollback is written, and undone is the outcome.
	waits    []cli.Look
	rollback []write
	undone   string
}

// write replaces the content of a file; nil is no file.
type write struct {
	path          string
	before, after []byte
	// secret keeps the content from being printed.
	secret bool
}

// appendWrite appends a write unless it would change nothing.
func appendWrite(writes []write, path string, before, after []byte) []write {
	if before != nil && after != nil && bytes.Equal(before, after) || before == nil && after == nil {
		return writes
	}
	return append(writes, write{path: path, before: before, after: after})
}

// planTakeover returns the steps of a takeover. It refuses at once what a later step could not do.
func (c *Config) planTakeover(o *observed) ([]step, error) {
	if err := c.checkKeyRing(o); err != nil {
		return nil, err
	}
	own := step{
		name:    StepManager,
		summary: "sa-controller-manager runs beside the control plane, until it is ready and kube-apiserver calls its webhook",
		advice: "Nothing of the control plane has been changed. Look at the log of the Pod kube-system/" + manager + "-" + c.Node +
			" (kubectl logs, or crictl logs on the node).\n" + again + "; kubeadm handback takes it out.",
		guards: []cli.Look{c.versionSupported(o), c.mayRegister(o)},
		waits:  []cli.Look{c.managerWorks(o)},
	}
	kcm := step{
		name:    StepControllerManager,
		summary: "kube-controller-manager leaves ServiceAccounts and their tokens to it",
		advice: "Look at the log of the Pod kube-system/" + controllerManager + "-" + c.Node + ". kube-apiserver has not been changed.\n" +
			again + "; kubeadm handback puts everything back.",
		// The first step may not be part of this call.
		guards: []cli.Look{c.versionSupported(o), c.managerServes(o)},
	}
	api := step{
		name:    StepAPIServer,
		summary: "kube-apiserver leaves the ServiceAccounts of Pods to its webhook",
		advice: "Look at the log of " + apiServer + " (crictl ps -a; crictl logs).\n" + again +
			"; kubeadm handback puts everything back, also while the API is away. Its previous manifest is " + c.backup(apiServer) + ".",
		guards: []cli.Look{c.versionSupported(o), c.socketServed(o), c.managerServes(o)},
	}
	if c.writesOwn(o) {
		own.notes = o.kcm.notes()
	}
	if c.writesOwn(o) && !bytes.Equal(o.manager, o.rendered) {
		own.writes = appendWrite(nil, c.manifest(manager), o.manager, o.rendered)
		own.guards = append(own.guards, c.keyAccepted(o), c.rootCAPublished(o), c.ensureIdentity(o))
	}
	if o.manager != nil && len(own.writes) > 0 {
		own.writes = append(appendWrite(nil, c.backup(manager), o.backups[manager], o.manager), own.writes...)
		own.rollback = []write{{path: c.manifest(manager), before: o.rendered, after: o.manager}}
		own.undone = "the previous " + c.manifest(manager) + " is back, and until its process is ready this kube-apiserver refuses Pods if its webhook is bound (sa-controller-manager webhook unregister ends that)"
		own.advice = "Look at the log of the Pod kube-system/" + manager + "-" + c.Node + " (kubectl logs, or crictl logs on the node).\n" + again + "."
	}
	all, err := c.components(o)
	if err != nil {
		return nil, err
	}
	if err := c.checkControllers(o); err != nil {
		return nil, err
	}
	for i, s := range []*step{&kcm, &api} {
		if err := c.planEdit(o, all[i], s); err != nil {
			return nil, err
		}
	}
	if !c.static(o) {
		api.guards = append(api.guards, c.bound)
	} else if err := c.planStatic(o, &api); err != nil {
		return nil, err
	}
	return c.selectSteps(own, kcm, api), nil
}

// planEdit plans the writes and waits of a takeover's step.
func (c *Config) planEdit(o *observed, one component, s *step) error {
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
		s.writes = appendWrite(s.writes, c.backup(one.name), o.backups[one.name], first.Bytes())
	}
	patch, err := o.patch(one, first, before)
	if err != nil {
		return err
	}
	// The patch comes first: if the command ends here, kubeadm upgrade does the rest.
	s.writes = appendWrite(s.writes, c.patch(one.name), o.patches[one.name], patch)
	s.writes = appendWrite(s.writes, c.manifest(one.name), before.Bytes(), after.Bytes())
	s.waits = []cli.Look{c.runs(one.name, after.Command())}
	return nil
}

// original returns a component's manifest from before any takeover: the backup, if a takeover turns it
// into the current manifest, and otherwise the current one.
func (o *observed) original(one component, now *staticpod.Manifest) *staticpod.Manifest {
	backup, err := staticpod.Parse(o.backups[one.name], one.name)
	if err != nil {
		return now
	}
	ways := []component{one}
	if one.name == apiServer {
		none := signingKeys{}
		ways = append(ways, apiServerComponent(), apiServerAs(true, false, none), apiServerAs(false, true, none), apiServerAs(true, true, none))
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

// selectSteps returns the steps that Config.Steps names.
func (c *Config) selectSteps(steps ...step) []step {
	return slices.DeleteFunc(steps, func(s step) bool { return !c.includes(s.name) })
}
