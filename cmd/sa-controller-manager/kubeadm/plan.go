// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"fmt"

	"sa-controller-manager/cmd/sa-controller-manager/kubeadm/staticpod"
)

// step is one thing to do and to wait for.
type step struct {
	name   string
	writes []write
	// command is what the component runs once the step has come true.
	command []string
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
	own := step{name: StepManager}
	if o.manager == nil || c.Rewrite {
		own.writes = wanted(nil, c.manifest(manager), o.manager, o.rendered)
	}
	steps := []step{own}
	for _, one := range components() {
		before, after, err := o.taken(one)
		if err != nil {
			return nil, err
		}
		s := step{name: one.name, command: after.Command()}
		if !bytes.Equal(before.Bytes(), after.Bytes()) {
			s.writes = wanted(s.writes, c.backup(one.name), o.backups[one.name], before.Bytes())
		}
		// The patch comes first: if all ends here, kubeadm upgrade does the rest.
		s.writes = wanted(s.writes, c.patch(one.name), o.patches[one.name], kubeadmPatch(one))
		s.writes = wanted(s.writes, c.manifest(one.name), before.Bytes(), after.Bytes())
		steps = append(steps, s)
	}
	return c.chosen(steps), nil
}

// taken is a component's manifest before and after a takeover.
func (o *observed) taken(one component) (before, after *staticpod.Manifest, err error) {
	if before, err = o.parsed(one); err != nil {
		return nil, nil, err
	}
	if after, err = edit(before, one.out); err != nil {
		return nil, nil, fmt.Errorf("the manifest of %s: %w", one.name, err)
	}
	return before, after, nil
}

func edit(m *staticpod.Manifest, decide func(*staticpod.Manifest) (staticpod.Edit, error)) (*staticpod.Manifest, error) {
	e, err := decide(m)
	if err != nil {
		return nil, err
	}
	return m.Apply(e)
}

// planHandback decides what a handback does.
func (c *Config) planHandback(o *observed) ([]step, error) {
	key := c.SigningKeyFile
	if key == "" {
		key = ownFlag(o.manager, keyFlag)
	}
	var steps []step
	for _, one := range []component{theAPIServer(), theControllerManager()} {
		before, err := o.parsed(one)
		if err != nil {
			return nil, fmt.Errorf("%w; put it right by hand, %s may have what it was", err, c.backup(one.name))
		}
		after, err := o.former(one, before, key)
		if err != nil {
			return nil, fmt.Errorf("the manifest of %s: %w", one.name, err)
		}
		s := step{name: one.name, command: after.Command()}
		s.writes = wanted(s.writes, c.manifest(one.name), before.Bytes(), after.Bytes())
		s.writes = wanted(s.writes, c.patch(one.name), o.patches[one.name], nil)
		steps = append(steps, s)
	}
	own := step{name: StepManager, writes: wanted(nil, c.manifest(manager), o.manager, nil)}
	return c.chosen(append(steps, step{name: StepWebhook}, own)), nil
}

// former is a component's manifest as it was: the backup, if a takeover would make of it
// exactly what there is now, and otherwise what there is now without our edits.
func (o *observed) former(one component, now *staticpod.Manifest, key string) (*staticpod.Manifest, error) {
	if backup, err := staticpod.Parse(o.backups[one.name], one.name); err == nil {
		if taken, err := edit(backup, one.out); err == nil && bytes.Equal(taken.Bytes(), now.Bytes()) {
			return backup, nil
		}
	}
	return edit(now, func(m *staticpod.Manifest) (staticpod.Edit, error) { return one.in(m, key) })
}

func (c *Config) chosen(steps []step) []step {
	var chosen []step
	for _, s := range steps {
		if c.does(s.name) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}
