// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
)

// step is one change and the waits before and after it.
type step struct {
	name string
	// notes are for the user, before the step runs.
	notes []string
	// summary says what the step does, and advice what to do when it times out.
	summary, advice string
	// proofs and then guards must succeed, in order, before anything is written. proofs only read, and do not
	// depend on earlier steps: a dry run asks them too.
	proofs, guards []cli.Check
	writes         []nodefile.Write
	// waits must succeed after the writes; otherwise rollback is written, and undone is the outcome.
	waits    []cli.Check
	rollback []nodefile.Write
	undone   string
}

// again begins most advice.
const again = "Running the same command again continues from here"

// logOf says where the log of a component is.
func logOf(name string) string {
	return "Look at the log of " + name + " (crictl ps -a; crictl logs) and of the kubelet."
}

// run prints the plan and runs its steps.
func (c *Config) run(ctx context.Context, steps []step) error {
	c.print(steps)
	act, changes := c.step, func(s step) bool { return len(s.writes) > 0 }
	switch {
	case c.DryRun && c.Client == nil:
		if c.Silent != nil {
			fmt.Fprintf(c.Out, "Not checked, because kube-apiserver did not answer (%v): whether it is this node's, accepts the key, and has "+
				"the root CA published.\n", c.Silent)
		}
		return nil
	case c.DryRun:
		act = ask
	case c.Confirm != nil && slices.ContainsFunc(steps, changes) && !c.Confirm(ctx, "Go on?"):
		return errors.New("nothing was changed")
	default:
		if err := c.removeLeftovers(); err != nil {
			return err
		}
	}
	for i, s := range steps {
		begun := time.Now()
		if err := act(ctx, s); err != nil {
			err = fmt.Errorf("step %d, %s: %w", i+1, s.name, err)
			if !c.DryRun && !cli.IsPermanent(err) { // a refusal says what to do
				err = fmt.Errorf("%w\n%s", err, cmp.Or(s.advice, again+"."))
			}
			return err
		}
		if !c.DryRun {
			fmt.Fprintf(c.Out, "Step %d, %s: done (%s).\n", i+1, s.name, time.Since(begun).Round(100*time.Millisecond))
		}
	}
	return nil
}

// removeLeftovers removes what killed commands have left beside the files.
func (c *Config) removeLeftovers() error {
	files := []string{c.recordFile(), c.onNode(component.AdmissionConfigFile)}
	for _, name := range []string{manager, component.ControllerManager, component.APIServer} {
		files = append(files, c.manifest(name), c.backup(name), c.patch(name))
	}
	var all []error
	for _, file := range files {
		all = append(all, atomicfile.RemoveLeftovers(file))
	}
	return errors.Join(all...)
}

// ask asks the proofs of a step once.
func ask(ctx context.Context, s step) error {
	for _, proof := range s.proofs {
		if err := proof(ctx); err != nil {
			return err
		}
	}
	return nil
}

// step runs the guards, the writes and the waits of a step.
func (c *Config) step(ctx context.Context, s step) error {
	if err := c.await(ctx, slices.Concat(s.proofs, s.guards)...); err != nil {
		return err
	}
	for _, w := range s.writes {
		if err := w.Do(); err != nil {
			return cli.Permanent(fmt.Errorf("%w. %s", err, again))
		}
	}
	err := c.await(ctx, s.waits...)
	if cli.IsPermanent(err) { // but files have changed
		err = errors.New(err.Error())
	}
	if err == nil || len(s.rollback) == 0 {
		return err
	}
	for _, w := range s.rollback {
		if failed := w.Do(); failed != nil {
			return fmt.Errorf("%w; the previous %s could not be put back from %s: %w", err, w.Path, filepath.Dir(c.recordFile()), failed)
		}
	}
	return fmt.Errorf("%w; %s", err, s.undone)
}

// print prints every step with the changes to its files.
func (c *Config) print(steps []step) {
	if c.Cluster != "" {
		fmt.Fprintf(c.Out, "Cluster: %s\n", c.Cluster)
	}
	for i, s := range steps {
		fmt.Fprintf(c.Out, "%d. %s: %s.\n", i+1, s.name, s.summary)
		for _, note := range s.notes {
			fmt.Fprintln(c.Out, note)
		}
		for _, w := range s.writes {
			if w.Path == c.recordFile() {
				continue // a handback reads it, and nobody else
			}
			if w.Path == c.backup(s.name) || w.Path == c.backup(manager) {
				fmt.Fprintf(c.Out, "The manifest without our changes is kept in %s.\n", w.Path)
				continue
			}
			fmt.Fprint(c.Out, w.Diff())
		}
	}
}
