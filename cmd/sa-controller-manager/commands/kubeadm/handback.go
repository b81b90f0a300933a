// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
)

// planHandback decides what a handback does. Nothing that it awaits needs our process,
// which may be what is broken.
func (c *Config) planHandback(o *observed) ([]step, error) {
	all, err := c.components(o)
	if err != nil {
		return nil, err
	}
	kcm := step{
		name: StepControllerManager, brings: "kube-controller-manager has its ServiceAccount controllers again",
		advice: "Look at the log of " + controllerManager + " (crictl ps -a; crictl logs) and of the kubelet.\n" + again + ".",
	}
	api := step{
		name: StepAPIServer, brings: "kube-apiserver has its ServiceAccount plugin again",
		advice: "Look at the log of " + apiServer + " (crictl ps -a; crictl logs) and of the kubelet.\n" + again + ".",
		guards: []cli.Look{c.exemptMirrors},
	}
	for i, s := range slices.Backward([]*step{&kcm, &api}) {
		if err := c.gives(o, all[i], s); err != nil {
			return nil, err
		}
	}
	return c.chosen(api, kcm, step{
		name:   StepWebhook,
		brings: "the webhook is unregistered",
		guards: []cli.Look{c.pluginsOn},
		comes:  []cli.Look{c.unregister},
	}, step{
		name:   StepManager,
		brings: "sa-controller-manager ends, and its two webhook configurations are deleted",
		guards: []cli.Look{c.socketUnused, c.unbound},
		writes: wanted(nil, c.manifest(manager), o.manager, nil),
		comes:  []cli.Look{c.managerGone(o), c.deleteConfigurations},
	}), nil
}

// gives plans what a step of a handback writes, and what is awaited then.
func (c *Config) gives(o *observed, one component, s *step) error {
	before, err := o.parsed(one)
	if err != nil {
		return fmt.Errorf("%w; put it right by hand, %s may have what it was", err, c.backup(one.name))
	}
	after, notes, err := c.former(o, one, before)
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", one.name, err)
	}
	if c.does(one.name) {
		unfit, err := c.keysFit(o, one.name, after)
		if err != nil {
			return err
		}
		notes = append(notes, unfit...)
	}
	switch gone := before != after && one.name == apiServer && !o.ownIsThere(); {
	case gone && o.backups[manager] == nil:
		notes = append(notes, "Our manifest is gone or damaged: nobody knows the keys in use, and they are not compared with those of the files that come back.")
	case gone:
		notes = append(notes, "Our manifest is gone or damaged: the keys that are compared are those that "+c.backup(manager)+" names.")
	}
	s.notes = notes
	s.writes = wanted(s.writes, c.manifest(one.name), before.Bytes(), after.Bytes())
	s.writes = wanted(s.writes, c.patch(one.name), o.patches[one.name], nil)
	s.comes = []cli.Look{c.runsAgain(one.name, after.Command())}
	return nil
}

// former is a component's manifest as it was: the backup, if a takeover would make of it
// exactly what there is now, and otherwise what there is now without what takeovers have
// added. notes are what the user has to know of it.
func (c *Config) former(o *observed, one component, now *staticpod.Manifest) (after *staticpod.Manifest, notes []string, err error) {
	if after = o.original(one, now); after == now {
		lines, known := recorded(o.patches[one.name])
		after, err = edit(now, func(m *staticpod.Manifest) (staticpod.Edit, error) {
			return one.in(m, lines, cmp.Or(c.SigningKeyFile, ownFlag(o.own(), keyFlag)))
		})
		if err != nil {
			return nil, nil, err
		}
		if !known && after != now {
			notes = append(notes, "There is no record of what a takeover has added to it. What goes is what stands there under the exact names of ours: look whether it is yours.")
		}
	}
	if one.name == apiServer && pluginIsOff(after.Command()) {
		notes = append(notes, "It had no "+pluginName+" plugin before, and gets none: the webhook stays until it has, or until you unregister it.")
	}
	return after, notes, nil
}

// in is the edit of a handback: it takes out the lines on record or, if they are nil and there
// is none, ours. Then nobody knows either which key kube-controller-manager has had, and it
// is keyFile if there is no other.
func (one component) in(m *staticpod.Manifest, lines []string, keyFile string) (staticpod.Edit, error) {
	known := lines != nil
	if !known {
		lines = one.lines
	}
	e, err := takenOut(m, lines)
	if err == nil && !known && one.name == controllerManager {
		e, err = withKey(m, e, keyFile)
	}
	if err == nil && one.rest != nil {
		e, err = one.rest(m, e)
	}
	return e, err
}

// takenOut takes out of a command what takeovers have added to it: each line once, the last
// of several; from a line that somebody has edited since, the elements of its list, if they
// all stand in one. What an operator has turned off by itself is in other lines.
func takenOut(m *staticpod.Manifest, lines []string) (staticpod.Edit, error) {
	e := staticpod.Edit{Replace: map[int]string{}}
	command := m.Command()
	for _, line := range lines {
		if i := lastIndex(command, line); i > 0 {
			e.Remove = append(e.Remove, i)
			command[i] = ""
			continue
		}
		name, list, _ := strings.Cut(strings.TrimPrefix(line, "--"), "=")
		values, err := m.Flag(name)
		if err != nil {
			return staticpod.Edit{}, err
		}
		for _, value := range slices.Backward(values) {
			left, all := less(staticpod.Split(value.Text), staticpod.Split(list))
			if !all {
				continue
			}
			// What a takeover adds where there was no --controllers is the default.
			if len(left) == 0 || len(values) == 1 && slices.Equal(left, []string{allControllers}) {
				e.Remove = append(e.Remove, value.Item)
			} else {
				e.Replace[value.Item] = assign(name, strings.Join(left, ","))
			}
			break
		}
	}
	return e, nil
}

func lastIndex(command []string, line string) int {
	for i, one := range slices.Backward(command) {
		if one == line {
			return i
		}
	}
	return -1
}

// less takes elements out of a list. all reports whether each was there, and there was one.
func less(list, elements []string) (left []string, all bool) {
	left = slices.Clone(list)
	for _, one := range elements {
		i := slices.Index(left, one)
		if i < 0 {
			return nil, false
		}
		left = slices.Delete(left, i, i+1)
	}
	return left, len(elements) > 0
}

// withKey gives kube-controller-manager a key file in the place of the empty flag that goes,
// if no other is left: a cluster that was made with ours has never had one.
func withKey(m *staticpod.Manifest, e staticpod.Edit, keyFile string) (staticpod.Edit, error) {
	values, err := m.Flag(keyFlag)
	if err != nil {
		return staticpod.Edit{}, err
	}
	goes := func(v staticpod.Value) bool { return slices.Contains(e.Remove, v.Item) }
	i := slices.IndexFunc(values, goes)
	if i < 0 {
		return e, nil
	}
	item := values[i].Item
	if staticpod.Last(slices.DeleteFunc(values, goes)) != "" {
		return e, nil
	}
	if keyFile == "" {
		return staticpod.Edit{}, fmt.Errorf("--%s has no value and had none before; say with --signing-key-file which key signs tokens", keyFlag)
	}
	e.Remove = slices.DeleteFunc(e.Remove, func(one int) bool { return one == item })
	e.Replace[item] = assign(keyFlag, keyFile)
	return e, nil
}

// exemptMirrors has kube-apiserver take the mirror pods of the steps to come while nobody
// answers the webhook: an older version may have registered it. While the API is away it is
// nothing; runsAgain goes on to ask for it.
func (c *Config) exemptMirrors(ctx context.Context) error {
	_ = registration.ExemptMirrorPods(ctx, c.Client)
	return nil
}

// runsAgain is runs for a webhook that may be in the way.
func (c *Config) runsAgain(component string, command []string) cli.Look {
	runs := c.runs(component, command)
	return func(ctx context.Context) error {
		exempt := registration.ExemptMirrorPods(ctx, c.Client)
		err := runs(ctx)
		if apierrors.IsNotFound(err) {
			return errors.Join(err, exempt)
		}
		return err
	}
}
