// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/atomicfile"
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
	if err := c.render(o); err != nil {
		return err
	}
	return c.run(ctx, o, c.planTakeover)
}

// Handback undoes Takeover.
func Handback(ctx context.Context, c Config) error {
	o, err := c.observe()
	if err != nil {
		return err
	}
	return c.run(ctx, o, c.planHandback)
}

// render makes our manifest from the other two, unless the existing one stays.
func (c *Config) render(o *observed) error {
	m, err := o.operatorManifest(controllerManagerComponent())
	if err != nil {
		return err
	}
	o.kcm = readKCM(m, o.manager, c.AcceptFlags)
	if !c.writesOwn(o) {
		return nil
	}
	if err := o.kcm.refusal(); err != nil {
		if c.DryRun {
			o.kcm.table(c.Out, nil)
		}
		return err
	}
	pod := manifests.StaticPodOptions{Image: m.Image(), Carried: o.kcm.args, Files: o.kcm.files}
	if err := c.ofAPIServer(o, &pod); err != nil {
		return err
	}
	o.certDir = pod.CertDir
	if o.rendered, err = c.Render(pod); err != nil {
		return err
	}
	if mode := ownFlag(o.rendered, registrationFlag); pod.StaticRegistration && mode != string(options.RegistrationStatic) {
		return fmt.Errorf("--extra-arg=%s contradicts --static-registration", assign(registrationFlag, mode))
	}
	if pod.Sockets, err = c.signerSockets(o.rendered); err != nil {
		return err
	}
	if len(pod.Sockets) > 0 {
		if o.rendered, err = c.Render(pod); err != nil {
			return err
		}
	}
	return c.checkBinary()
}

// again begins most advice.
const again = "Running the same command again continues from here"

// run prints the plan and runs its steps.
func (c *Config) run(ctx context.Context, o *observed, plan func(*observed) ([]step, error)) error {
	steps, err := plan(o)
	if err != nil {
		return err
	}
	if c.DryRun && o.kcm != nil {
		o.kcm.table(c.Out, c.ownManifest(o))
	}
	c.print(steps)
	if c.DryRun {
		return nil
	}
	for i, s := range steps {
		begun := c.Clock.Now()
		if err := c.step(ctx, s); err != nil {
			return fmt.Errorf("step %d, %s: %w\n%s", i+1, s.name, err, cmp.Or(s.advice, again+"."))
		}
		fmt.Fprintf(c.Out, "Step %d, %s: done (%s).\n", i+1, s.name, c.Clock.Since(begun).Round(100*time.Millisecond))
	}
	return nil
}

// step runs the guards, the writes and the waits of a step.
func (c *Config) step(ctx context.Context, s step) error {
	if err := c.await(ctx, s.guards...); err != nil {
		return err
	}
	for _, w := range s.writes {
		if err := w.do(); err != nil {
			return err
		}
	}
	err := c.await(ctx, s.waits...)
	if err == nil || len(s.rollback) == 0 {
		return err
	}
	for _, w := range s.rollback {
		if failed := w.do(); failed != nil {
			return fmt.Errorf("%w; the previous %s could not be put back from %s: %w", err, w.path, c.BackupDir, failed)
		}
	}
	return fmt.Errorf("%w; %s", err, s.undone)
}

// do writes or removes the file.
func (w write) do() error {
	err := w.change()
	if errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("%w; it is a mount, for instance one of kind's extraMounts: change it where it is mounted from", err)
	}
	return err
}

// unchanged refuses to overwrite a file that has changed since it was read: steps are minutes apart.
func (w write) unchanged() error {
	now, err := readIfThere(w.path)
	if err != nil {
		return err // it names the path
	}
	if (now == nil) != (w.before == nil) || !bytes.Equal(now, w.before) {
		return fmt.Errorf("%s has been changed since it was read", w.path)
	}
	return nil
}

// change creates directories that only their owner can read: they hold manifests.
func (w write) change() error {
	if err := w.unchanged(); err != nil {
		return err
	}
	if w.after == nil {
		return atomicfile.Remove(w.path)
	}
	if err := os.MkdirAll(filepath.Dir(w.path), 0o700); err != nil {
		return err // it names the path
	}
	return atomicfile.Write(w.path, w.after, 0o600)
}
