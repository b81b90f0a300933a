// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/internal/atomicfile"
)

// direction is in or out.
type direction int

const (
	takeover direction = iota
	handback
)

// Takeover puts sa-controller-manager in the place of what it replaces. What is done
// already is left as it is.
func Takeover(ctx context.Context, c Config) error {
	o, err := c.observe()
	if err != nil {
		return err
	}
	if err := c.render(o); err != nil {
		return err
	}
	steps, err := c.planTakeover(o)
	if err != nil {
		return err
	}
	c.print(takeover, steps)
	if c.DryRun {
		return nil
	}
	return c.run(ctx, takeover, o, steps)
}

// Handback puts everything back.
func Handback(ctx context.Context, c Config) error {
	o, err := c.observe()
	if err != nil {
		return err
	}
	steps, err := c.planHandback(o)
	if err != nil {
		return err
	}
	c.print(handback, steps)
	if c.DryRun {
		return nil
	}
	return c.run(ctx, handback, o, steps)
}

// render makes our manifest, for which kube-controller-manager's says the image.
func (c *Config) render(o *observed) (err error) {
	m, err := staticpod.Parse(o.edited[controllerManager], controllerManager)
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", controllerManager, err)
	}
	signer, err := c.signer(o)
	if err != nil {
		return err
	}
	o.rendered, err = c.Render(m.Image(), signer)
	return err
}

func (c *Config) run(ctx context.Context, d direction, o *observed, steps []step) error {
	for i, s := range steps {
		begun := c.Clock.Now()
		if err := c.step(ctx, d, o, s); err != nil {
			return fmt.Errorf("step %d, %s: %w\n%s", i+1, s.name, err, d.advice(c, s))
		}
		fmt.Fprintf(c.Out, "Step %d, %s: done (%s).\n", i+1, s.name, c.Clock.Since(begun).Round(100*time.Millisecond))
	}
	return nil
}

// step looks whether it may begin, writes, and waits.
func (c *Config) step(ctx context.Context, d direction, o *observed, s step) error {
	if err := c.guard(ctx, d, o, s); err != nil {
		return err
	}
	if err := c.applyPermissions(ctx, d, o, s); err != nil {
		return err
	}
	for _, w := range s.writes {
		if err := w.do(); err != nil {
			return err
		}
	}
	return c.settle(ctx, d, o, s)
}

// settle waits until a step has come true, and does what must come after that.
func (c *Config) settle(ctx context.Context, d direction, o *observed, s step) error {
	switch {
	case s.name == StepAPIServer || s.name == StepControllerManager:
		return c.await(ctx, c.runs(s.name, s.command))
	case s.name == StepWebhook:
		return c.await(ctx, c.unregister)
	case d == takeover:
		return c.await(ctx, c.managerWorks(o))
	default:
		if err := c.await(ctx, c.managerGone(o)); err != nil {
			return err
		}
		return c.await(ctx, c.deleteConfigurations)
	}
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

// advice is what to do about a step that did not come.
func (d direction) advice(c *Config, s step) string {
	again := "The same command again goes on from here"
	switch {
	case d == handback:
		return again + "."
	case s.name == StepManager:
		return "Nothing of the control plane has been changed. Look at the log of the Pod kube-system/" + manager + "-" + c.Node +
			" (kubectl logs, or crictl logs on the node).\n" + again + "; kubeadm handback takes it out."
	case s.name == StepControllerManager:
		return "Look at the log of the Pod kube-system/" + s.name + "-" + c.Node + ". kube-apiserver has not been changed.\n" +
			again + "; kubeadm handback puts everything back."
	default:
		return "Look at the log of " + s.name + " (crictl ps -a; crictl logs).\n" + again +
			"; kubeadm handback puts everything back, also while the API is away. Its former manifest is " + c.backup(s.name) + "."
	}
}
