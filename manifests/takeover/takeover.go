// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sa-controller-manager/admission/earlier"
	"sa-controller-manager/internal/await"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
)

// Run adds sa-controller-manager to the control plane of this node. Finished steps are no-ops.
func Run(ctx context.Context, c Config) error {
	o, err := c.observe()
	if err != nil {
		return err
	}
	if err := c.checkStrayManifests(); err != nil {
		return err
	}
	taken := o.record.Components[component.APIServer] // a restart changes nothing
	if len(taken.Lines)+len(taken.Mounts) > 0 && c.Client != nil && !c.DryRun {
		if err := c.await(ctx, c.answers); err != nil {
			return c.wayBack(ctx, err)
		}
	}
	d, err := c.desire(o)
	if err != nil {
		return err
	}
	if c.Client != nil && d.files {
		if d.earlier, err = earlier.Changers(ctx, c.Client, true); err != nil {
			d.earlier = []string{"unknown, " + err.Error()} // a note, and nothing depends on it
		}
	}
	steps, err := c.planTakeover(o, d)
	if err != nil {
		return err
	}
	if d.written && c.includes(StepManager) {
		if err := cmp.Or(c.checkBinary(ctx), c.readNamed(d), c.checkDroppedRing(o, d)); err != nil {
			return err
		}
	}
	return c.run(ctx, steps)
}

// planTakeover returns the steps of a takeover.
func (c *Config) planTakeover(o *observed, d *desired) ([]step, error) {
	if o.manager == nil && !c.includes(StepManager) {
		return nil, fmt.Errorf("our process has no manifest on this node: the step %s comes first", StepManager)
	}
	var steps []step
	w := written{c: c, record: o.record, data: o.recordFile}
	if c.includes(StepManager) {
		steps = append(steps, c.planManager(o, d, &w))
	}
	if c.includes(StepControllerManager) {
		kcm := c.componentStep(o, d, StepControllerManager, "kube-controller-manager leaves ServiceAccounts and their tokens to it")
		if err := w.takes(&kcm, o.files[component.ControllerManager], d.controllerManager); err != nil {
			return nil, err
		}
		steps = append(steps, kcm)
	}
	if !c.includes(StepAPIServer) {
		return steps, nil
	}
	api, err := c.planAPIServer(o, d, &w)
	return append(steps, api...), err
}

// works waits for our process. Before kube-apiserver reads its files, that is all that our process may lack.
func (c *Config) works(o *observed, d *desired) await.Check {
	if d.files && !o.apiServer().ReadsFiles() {
		return c.managerReady(d, "?exclude="+registrationCheck)
	}
	return c.managerReady(d, "")
}

func (c *Config) planManager(o *observed, d *desired, w *written) step {
	log := "Look at the log of the Pod kube-system/" + manager + "-" + c.Node + " (kubectl logs, or crictl logs on the node).\n"
	s := step{
		name:    StepManager,
		summary: "sa-controller-manager runs beside the control plane, until it is ready",
		advice:  "Nothing of the control plane has been changed. " + log + again + "; kubeadm handback takes it out.",
		proofs:  []await.Check{c.isNode(o)},
		waits:   []await.Check{c.works(o, d)},
	}
	if d.written {
		s.notes = slices.Concat(d.left, c.recordNotes(o, d))
		given := w.record
		given.Flags = c.Given
		s.writes = w.next(given)
	}
	changed := d.written && !bytes.Equal(o.manager, d.manifest)
	if changed {
		s.writes = nodefile.Append(s.writes, c.manifest(manager), o.manager, d.manifest)
		s.proofs = append(s.proofs, c.keyAccepted(d), c.rootCAPublished(d))
		s.guards = []await.Check{c.ensureIdentity(d)}
	}
	if o.manager != nil && changed {
		s.rollback = nodefile.Reverse(s.writes)
		s.writes = append(nodefile.Append(nil, c.backup(manager), o.managerBackup, o.manager), s.writes...)
		s.undone = "the previous " + c.manifest(manager) + " is back, and until its process is ready this kube-apiserver refuses Pods"
		s.advice = log + again + "."
	}
	return s
}

// componentStep is a step but for its writes. The first step may not be part of this call, so it awaits our process, too.
func (c *Config) componentStep(o *observed, d *desired, name, summary string) step {
	return step{
		name: name, summary: summary,
		advice: logOf(name) + "\n" + again + "; kubeadm handback puts everything back, also while the API is away.",
		proofs: []await.Check{c.isNode(o)}, guards: []await.Check{c.works(o, d)},
	}
}

// planAPIServer returns one step or, if kube-apiserver does not read our files yet, two: our process binds the webhook
// only once kube-apiserver has called it, beside its plugin.
func (c *Config) planAPIServer(o *observed, d *desired, w *written) ([]step, error) {
	last := c.componentStep(o, d, StepAPIServer, "kube-apiserver leaves the ServiceAccounts of Pods to its webhook")
	if !d.files {
		if last.summary = "kube-apiserver keeps its ServiceAccount plugin"; d.changes.Signer {
			last.summary += ", and has our process sign its tokens"
		}
		last.notes = []string{d.note}
		err := w.takes(&last, o.apiServer(), d.apiServer)
		return []step{last}, err
	}
	ordinary, err := c.checkPlugin(d.own)
	if err != nil {
		return nil, err
	}
	last.proofs = append([]await.Check{c.switchedOff}, last.proofs...)
	files := last
	files.summary = "kube-apiserver reads our webhook from files, and calls it beside its plugin"
	files.writes = nodefile.Append(nil, c.onNode(component.AdmissionConfigFile), o.copied, d.copied)
	if err := w.takes(&files, o.apiServer(), d.readsFiles); err != nil {
		return nil, err
	}
	files.waits = append(files.waits, c.managerReady(d, ""))
	var steps []step
	if len(files.writes) > 0 {
		steps = []step{files}
	}
	last.guards = []await.Check{c.managerReady(d, ""), c.restricted(ordinary)}
	if len(d.earlier) > 0 {
		last.notes = []string{"These change Pods before our webhook gives them account, token and pull secrets (docs/comparison.md): " +
			strings.Join(d.earlier, ", ") + "."}
	}
	err = w.takes(&last, d.readsFiles, d.apiServer)
	return append(steps, last), err
}

// written is how far the steps before have changed the record.
type written struct {
	c      *Config
	record component.Record
	data   []byte // its file
}

// next returns the writes that make it another record.
func (w *written) next(record component.Record) []nodefile.Write {
	before := w.data
	w.record, w.data = record, record.Encode()
	return nodefile.Append(nil, w.c.RecordFile(), before, w.data)
}

// takes plans the writes and waits of a takeover's step. The record comes before what it is about, and the patch before
// the manifest: if the command ends between, kubeadm upgrade does the rest. A kube-apiserver that does not come gets
// back what it had, except that the backup of its first manifest stays.
func (w *written) takes(s *step, before, after component.Files) error {
	c := w.c
	m, err := after.Parse()
	if err != nil {
		return err
	}
	if now, err := before.Parse(); err == nil && !now.Plain() && !bytes.Equal(before.Manifest, after.Manifest) {
		s.notes = append(s.notes, "Its comments, quotes and order of keys are lost while it is taken over. "+
			"The backup has them, and a handback restores it.")
	}
	changes := slices.Concat(s.writes, w.next(w.record.With(after.Name, after.Taken)))
	changes = nodefile.Append(changes, c.patch(after.Name), before.Patch, after.Patch)
	changes = nodefile.Append(changes, c.manifest(after.Name), before.Manifest, after.Manifest)
	s.writes = append(nodefile.Append(nil, c.backup(after.Name), before.Backup, after.Backup), changes...)
	s.waits = []await.Check{c.runs(after.Name, m)}
	if after.Name == component.APIServer {
		s.rollback, s.undone = nodefile.Reverse(changes), "the previous manifest of "+component.APIServer+" is back"
	}
	return nil
}
