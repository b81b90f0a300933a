// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"fmt"
	"slices"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
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
	if err := c.keepsKeyRing(o); err != nil {
		return nil, err
	}
	own := step{name: StepManager}
	if o.manager == nil || c.Rewrite {
		own.writes = wanted(nil, c.manifest(manager), o.manager, o.rendered)
	}
	steps := []step{own}
	all, err := c.components(o)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		before, after, err := o.taken(one)
		if err != nil {
			return nil, err
		}
		s := step{name: one.name, command: after.Command()}
		first := o.original(one, before)
		if !bytes.Equal(before.Bytes(), after.Bytes()) {
			s.writes = wanted(s.writes, c.backup(one.name), o.backups[one.name], first.Bytes())
		}
		patch, err := o.patch(one, first)
		if err != nil {
			return nil, err
		}
		// The patch comes first: if all ends here, kubeadm upgrade does the rest.
		s.writes = wanted(s.writes, c.patch(one.name), o.patches[one.name], patch)
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

// planHandback decides what a handback does.
func (c *Config) planHandback(o *observed) ([]step, error) {
	key := c.SigningKeyFile
	if key == "" {
		key = ownFlag(o.manager, keyFlag)
	}
	all, err := c.components(o)
	if err != nil {
		return nil, err
	}
	var steps []step
	for _, one := range slices.Backward(all) {
		before, err := o.parsed(one)
		if err != nil {
			return nil, fmt.Errorf("%w; put it right by hand, %s may have what it was", err, c.backup(one.name))
		}
		after, err := o.former(one, before, key)
		if err != nil {
			return nil, fmt.Errorf("the manifest of %s: %w", one.name, err)
		}
		if err := c.keysFit(o, one.name, after); err != nil {
			return nil, err
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
	if first := o.original(one, now); first != now {
		return first, nil
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
