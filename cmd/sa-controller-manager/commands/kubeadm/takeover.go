// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/nodefile"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
)

// Takeover adds sa-controller-manager to the control plane of this node. Finished steps are no-ops.
func Takeover(ctx context.Context, c Config) error {
	o, err := c.observe()
	if err != nil {
		return err
	}
	if err := c.checkStrayManifests(); err != nil {
		return err
	}
	if err := c.chooseMode(ctx, o); err != nil {
		return err
	}
	if err := c.render(o); err != nil {
		return err
	}
	return c.run(ctx, o, func(o *observed) ([]step, error) {
		steps, err := c.planTakeover(o)
		if err != nil {
			return nil, err
		}
		return steps, c.prove(ctx, o)
	})
}

// render makes our manifest from the other two, unless the existing one stays.
func (c *Config) render(o *observed) error {
	m, err := component.ForControllerManager().Operators(o.files[component.ControllerManager])
	if err != nil {
		return err
	}
	o.kcm = component.Carry(m, o.manager, slices.Concat(c.AcceptFlags, component.FlagsIn(c.Kept, acceptFlag)))
	if !c.writesOwn(o) {
		return nil
	}
	if err := o.kcm.Refusal(c.AcceptFlags); err != nil {
		if c.DryRun {
			o.kcm.Table(c.Out, nil)
		}
		return err
	}
	pod := manifests.StaticPodOptions{Image: m.Image(), Carried: o.kcm.Args, Files: o.kcm.Files}
	if err := c.ofAPIServer(o, &pod); err != nil {
		return err
	}
	o.certDir = pod.CertDir
	if o.rendered, err = c.Render(pod); err != nil {
		return err
	}
	if pod.Sockets, err = c.signerSockets(o.rendered); err != nil {
		return err
	}
	if o.createSecrets, err = createsSecrets(o.rendered); err != nil {
		return err
	}
	if pod.CreateSecrets = o.createSecrets; len(pod.Sockets) > 0 || pod.CreateSecrets {
		if o.rendered, err = c.Render(pod); err != nil {
			return err
		}
	}
	if err := staticpod.Check(o.rendered); err != nil {
		return fmt.Errorf("our manifest: %w", err)
	}
	return nil
}

// planTakeover returns the steps of a takeover. It refuses at once what a later step could not do.
func (c *Config) planTakeover(o *observed) ([]step, error) { //nolint:funlen // the steps stand in their order
	if err := c.checkKeyRing(o); err != nil {
		return nil, err
	}
	if o.manager == nil && !c.includes(StepManager) {
		return nil, fmt.Errorf("our process has no manifest on this node: the step %s comes first", StepManager)
	}
	changes, err := c.changes(o)
	if err != nil {
		return nil, err
	}
	// Before kube-apiserver reads its files, that is all that our process may lack.
	works := c.managerReady(o, "")
	if o.fromFiles() && !o.apiServer().ReadsFiles() {
		works = c.managerReady(o, "?exclude="+registrationCheck)
	}
	log := "Look at the log of the Pod kube-system/" + manager + "-" + c.Node + " (kubectl logs, or crictl logs on the node).\n"
	own := step{
		name:    StepManager,
		summary: "sa-controller-manager runs beside the control plane, until it is ready",
		advice:  "Nothing of the control plane has been changed. " + log + again + "; kubeadm handback takes it out.",
		proofs:  []cli.Check{c.isNode(o)},
		waits:   []cli.Check{works},
	}
	kcm := step{
		name:    StepControllerManager,
		summary: "kube-controller-manager leaves ServiceAccounts and their tokens to it",
		advice: "Look at the log of the Pod kube-system/" + component.ControllerManager + "-" + c.Node +
			". kube-apiserver has not been changed.\n" + again + "; kubeadm handback puts everything back.",
		// The first step may not be part of this call.
		proofs: []cli.Check{c.isNode(o)},
		guards: []cli.Check{works},
	}
	api := step{
		name:    StepAPIServer,
		summary: "kube-apiserver leaves the ServiceAccounts of Pods to its webhook",
		advice: "Look at the log of " + component.APIServer + " (crictl ps -a; crictl logs).\n" + again +
			"; kubeadm handback puts everything back, also while the API is away.",
		proofs: []cli.Check{c.isNode(o)},
		guards: []cli.Check{works},
	}
	if c.writesOwn(o) {
		own.notes = append(o.kcm.Notes(), c.recordNotes(o)...)
	}
	if c.writesOwn(o) && !bytes.Equal(o.manager, o.rendered) {
		own.writes = nodefile.Append(nil, c.manifest(manager), o.manager, o.rendered)
		own.proofs = append(own.proofs, c.keyAccepted(o), c.rootCAPublished(o))
		own.guards = []cli.Check{c.ensureIdentity(o)}
	}
	if o.manager != nil && len(own.writes) > 0 {
		own.writes = append(nodefile.Append(nil, c.backup(manager), o.managerBackup, o.manager), own.writes...)
		own.rollback = []nodefile.Write{{Path: c.manifest(manager), Before: o.rendered, After: o.manager}}
		own.undone = "the previous " + c.manifest(manager) + " is back, and until its process is ready this kube-apiserver refuses Pods"
		own.advice = log + again + "."
	}
	if o.manager == nil {
		own.undo = c.unbind
	}
	if c.includes(StepControllerManager) {
		if err := o.files[component.ControllerManager].CheckControllers(c.ownManifest(o)); err != nil {
			return nil, err
		}
	}
	if !component.HasVersion(o.kcm.Image()) {
		kcm.notes = []string{"The image of kube-controller-manager names no version, so it keeps " + options.ClusterTrustBundlePublisher +
			", which it has from v1.37 on. That deletes our ClusterTrustBundle when the root CA changes. To take it over too: write the " +
			"version beside the digest in the manifest, NAME:v1.37.2@sha256:..., and run this command again."}
	}
	if err := c.planEdit(o, component.ForControllerManager(), &kcm); err != nil {
		return nil, err
	}
	steps := []step{own, kcm}
	switch {
	case o.fromFiles():
		files := api
		files.proofs = append([]cli.Check{c.switchedOff}, api.proofs...)
		files.summary = "kube-apiserver reads our webhook from files, and calls it beside its plugin"
		if err := c.planStatic(o, changes, &files); err != nil {
			return nil, err
		}
		if len(files.writes) > 0 {
			steps = append(steps, files)
		}
		api.proofs, api.guards = files.proofs, []cli.Check{c.managerReady(o, "")}
	case o.inAPI():
		steps[0].waits, api.guards = append(steps[0].waits, c.bound), append(api.guards, c.bound)
	case o.mode == registration.None:
		api.summary = "kube-apiserver keeps its ServiceAccount plugin"
	}
	if o.mode != registration.None && c.includes(StepAPIServer) {
		ordinary, err := c.checkPlugin(c.ownManifest(o))
		if err != nil {
			return nil, err
		}
		api.guards = append(api.guards, c.restricted(ordinary))
	}
	for _, note := range []string{o.note, c.checkInFlight(o)} {
		if note != "" {
			api.notes = append(api.notes, note)
		}
	}
	if err := c.planEdit(o, component.ForAPIServer(changes, o.apiServer().SigningKeys(o.own())), &api); err != nil {
		return nil, err
	}
	c.rollsBack(&api)
	return c.selectSteps(append(steps, api)...), nil
}

// rollsBack gives kube-apiserver back what it had if it does not come after the writes of a step. The backup
// of its first manifest stays.
func (c *Config) rollsBack(s *step) {
	for _, w := range slices.Backward(s.writes) {
		if w.Path != c.backup(component.APIServer) {
			s.rollback = append(s.rollback, nodefile.Write{Path: w.Path, Before: w.After, After: w.Before})
		}
	}
	s.undone = "the previous manifest of " + component.APIServer + " is back"
}

// planEdit plans the writes and waits of a takeover's step.
func (c *Config) planEdit(o *observed, one component.Component, s *step) error {
	f := o.files[one.Name]
	taken, err := one.Takeover(f)
	if err != nil {
		return err
	}
	if err := staticpod.Check(taken.After.Bytes()); err != nil {
		return fmt.Errorf("the manifest of %s: %w", one.Name, err)
	}
	after := component.Files{Name: f.Name, Manifest: taken.After.Bytes(), Backup: taken.Backup, Patch: taken.Patch, WithOurs: f.WithOurs}
	s.writes = nodefile.Append(s.writes, c.backup(one.Name), f.Backup, after.Backup)
	// The patch comes first: if the command ends here, kubeadm upgrade does the rest.
	s.writes = nodefile.Append(s.writes, c.patch(one.Name), f.Patch, after.Patch)
	s.writes = nodefile.Append(s.writes, c.manifest(one.Name), f.Manifest, after.Manifest)
	s.waits = []cli.Check{c.runs(one.Name, taken.After.Command())}
	o.files[one.Name] = after // for the next step of the same component
	return nil
}
