// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
)

// planHandback returns the steps of a handback. None of them waits for our process, which may be what
// is broken.
func (c *Config) planHandback(o *observed) ([]step, error) {
	all, err := c.components(o)
	if err != nil {
		return nil, err
	}
	kcm := step{
		name: StepControllerManager, summary: "kube-controller-manager has its ServiceAccount controllers again",
		advice: "Look at the log of " + controllerManager + " (crictl ps -a; crictl logs) and of the kubelet.\n" + again + ".",
	}
	api := step{
		name: StepAPIServer, summary: "kube-apiserver has its ServiceAccount plugin again",
		advice: "Look at the log of " + apiServer + " (crictl ps -a; crictl logs) and of the kubelet.\n" + again + ".",
	}
	for i, s := range slices.Backward([]*step{&kcm, &api}) {
		if err := c.planGiveBack(o, all[i], s); err != nil {
			return nil, err
		}
	}
	return c.selectSteps(api, kcm, step{
		name:    StepWebhook,
		summary: "the webhook is unregistered",
		guards:  []cli.Look{c.pluginsOn},
		waits:   []cli.Look{func(ctx context.Context) error { return registration.Unregister(ctx, c.Client) }},
	}, step{
		name:    StepManager,
		summary: "sa-controller-manager ends, and its two webhook configurations are deleted",
		guards:  []cli.Look{c.socketUnused, c.filesUnused, c.unbound},
		writes:  appendWrite(nil, c.manifest(manager), o.manager, nil),
		waits:   []cli.Look{c.managerGone(o), c.deleteConfigurations},
	}), nil
}

// planGiveBack plans the writes and waits of a handback's step.
func (c *Config) planGiveBack(o *observed, one component, s *step) error {
	before, err := o.parsed(one)
	if err != nil {
		return fmt.Errorf("%w; correct it by hand, %s may have the original", err, c.backup(one.name))
	}
	after, notes, err := c.previousManifest(o, one, before)
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", one.name, err)
	}
	if c.includes(one.name) {
		check := c.checkKeyFiles
		if c.NewKey {
			check = func(o *observed, name string, after *staticpod.Manifest) ([]string, error) {
				return c.planNewKey(o, name, after, s)
			}
		}
		problems, err := check(o, one.name, after)
		if err != nil {
			return err
		}
		notes = append(notes, problems...)
	}
	switch gone := before != after && one.name == apiServer && !o.ownIsThere(); {
	case gone && o.backups[manager] == nil:
		notes = append(notes, "Our manifest is gone or damaged, so the keys in use are unknown and are not compared with the key files that come back.")
	case gone:
		notes = append(notes, "Our manifest is gone or damaged. The keys in use are taken from "+c.backup(manager)+".")
	}
	s.notes = notes
	s.writes = appendWrite(s.writes, c.manifest(one.name), before.Bytes(), after.Bytes())
	s.writes = appendWrite(s.writes, c.patch(one.name), o.patches[one.name], nil)
	s.waits = []cli.Look{c.runs(one.name, after.Command())}
	if one.name != apiServer {
		return nil
	}
	copied, err := readIfThere(c.onNode(admissionConfigFile))
	s.writes = appendWrite(s.writes, c.onNode(admissionConfigFile), copied, nil)
	return err
}

// previousManifest returns a component's manifest as it was: the backup, if a takeover would make of it
// exactly the current one, and otherwise the current one without what takeovers have added.
// notes are for the user.
func (c *Config) previousManifest(o *observed, one component, now *staticpod.Manifest) (after *staticpod.Manifest, notes []string, err error) {
	if after = o.original(one, now); after == now {
		lines, known := recorded(o.patches[one.name])
		after, err = edit(now, func(m *staticpod.Manifest) (staticpod.Edit, error) {
			return one.in(m, lines, cmp.Or(c.SigningKeyFile, ownFlag(o.own(), keyFlag)))
		})
		if err != nil {
			return nil, nil, err
		}
		if !known && after != now {
			notes = append(notes, "No record says what a takeover has added to it. The lines below are removed because they match ours exactly: check that they are not yours.")
		}
	}
	if one.name == apiServer && pluginIsOff(after.Command()) {
		notes = append(notes, "It had no "+pluginName+" plugin before, and gets none. The webhook stays until it has one, or until you unregister it.")
	}
	return after, notes, nil
}

// in returns the edit of a handback. It removes the recorded lines or, if they are nil because there is
// no record, our standard lines. Without a record kube-controller-manager's key file is unknown too, and
// is keyFile unless its command names one.
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

// takenOut removes from a command what takeovers have added: each line once, the last of several equal
// ones. If a line was edited since, it removes the elements of the list, provided that one line has them
// all. The operator's own opt-outs are in other lines.
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
			left, all := without(staticpod.Split(value.Text), staticpod.Split(list))
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

// without removes elements from a list. all reports whether each was in it, and there was one.
func without(list, elements []string) (left []string, all bool) {
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

// withKey replaces the empty key flag by a key file if no other is left: in a cluster that was created
// with our process, kube-controller-manager never had one.
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
		return staticpod.Edit{}, fmt.Errorf("--%s has no value and had none before; name the key that signs tokens with --signing-key-file", keyFlag)
	}
	e.Remove = slices.DeleteFunc(e.Remove, func(one int) bool { return one == item })
	e.Replace[item] = assign(keyFlag, keyFile)
	return e, nil
}
