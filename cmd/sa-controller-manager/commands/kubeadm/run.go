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

	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/manifests"
)

// Takeover puts sa-controller-manager in the place of what it replaces. What is done
// already is left as it is.
func Takeover(ctx context.Context, c Config) error {
	o, err := c.observe()
	if err != nil {
		return err
	}
	if err := c.alone(); err != nil {
		return err
	}
	if err := c.render(o); err != nil {
		return err
	}
	return c.run(ctx, o, c.planTakeover)
}

// Handback puts everything back.
func Handback(ctx context.Context, c Config) error {
	o, err := c.observe()
	if err != nil {
		return err
	}
	return c.run(ctx, o, c.planHandback)
}

// render makes our manifest of what the two others say, unless the one that is there stays.
func (c *Config) render(o *observed) error {
	m, err := o.operators(controllerManagerComponent())
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
	return c.binaryStays()
}

// again goes before what else there is to do.
const again = "The same command again goes on from here"

// run prints the plan and goes through it.
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

// step awaits that it may begin, writes, and awaits that it has come.
func (c *Config) step(ctx context.Context, s step) error {
	if err := c.await(ctx, s.guards...); err != nil {
		return err
	}
	for _, w := range s.writes {
		if err := w.do(); err != nil {
			return err
		}
	}
	err := c.await(ctx, s.comes...)
	for _, w := range s.back {
		if err == nil {
			break
		}
		if failed := w.do(); failed != nil {
			err = fmt.Errorf("%w; the previous %s could not be put back from %s: %w", err, w.path, c.BackupDir, failed)
		} else {
			err = fmt.Errorf("%w; the previous %s is back, and until its process is ready this kube-apiserver refuses Pods if its webhook is bound (sa-controller-manager webhook unregister ends that)", err, w.path)
		}
	}
	return err
}

// do writes or removes the file.
func (w write) do() error {
	err := w.change()
	if errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("%w; it is mounted from elsewhere, as a kind cluster's extraMounts are: change it there", err)
	}
	return err
}

// unchanged refuses to write over what somebody else has written since it was read: steps
// are minutes apart.
func (w write) unchanged() error {
	now, err := os.ReadFile(w.path)
	if errors.Is(err, os.ErrNotExist) {
		now, err = nil, nil
	}
	if err != nil {
		return err // it names the path
	}
	if (now == nil) != (w.before == nil) || !bytes.Equal(now, w.before) {
		return fmt.Errorf("%s has been changed since it was read", w.path)
	}
	return nil
}

// change makes directories that only their owner can look into: they hold manifests.
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
