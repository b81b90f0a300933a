// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"slices"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
)

// Handback returns the manifest as it was before takeovers: the backup, if a takeover would make of it
// exactly the current one, and otherwise the current one without what takeovers have added. keyFile is
// the key of kube-controller-manager if nothing names one. notes are for the user.
func (c Component) Handback(f Files, now *staticpod.Manifest, keyFile string) (after *staticpod.Manifest, notes []string, err error) {
	if after = c.original(f, now); after == now {
		lines, known := recorded(f.Patch)
		if after, err = edit(now, c.in(lines, keyFile)...); err != nil {
			return nil, nil, fmt.Errorf("the manifest of %s: %w", c.Name, err)
		}
		if !known && after != now {
			notes = append(notes, "No record says what a takeover has added to it. "+
				"The lines below are removed because they match ours exactly: check that they are not yours.")
		}
	}
	if c.Name == APIServer && pluginIsOff(after.Command()) {
		notes = append(notes, "It had no "+pluginName+" plugin before, and gets none. "+
			"The webhook stays until it has one, or until you unregister it.")
	}
	return after, notes, nil
}

// in makes the edit of a handback. It removes the recorded lines or, if they are nil because there is
// no record, our standard lines. Without a record kube-controller-manager's key file is unknown too, and
// is keyFile unless its command names one.
func (c Component) in(lines []string, keyFile string) []change {
	switch {
	case lines != nil:
		return append([]change{takenOut(lines)}, c.rest...)
	case c.Name == ControllerManager:
		return []change{takenOut(c.lines), withKey(keyFile)}
	}
	return append([]change{takenOut(c.lines)}, c.rest...)
}

// takenOut removes from a command what takeovers have added: each line once, the last of several equal
// ones. If a line was edited since, it removes the elements of the list, provided that one line has them
// all. The operator's own opt-outs are in other lines.
func takenOut(lines []string) change {
	return func(m *staticpod.Manifest, e *staticpod.Edit) error {
		e.Replace = map[int]string{}
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
				return err
			}
			for _, value := range slices.Backward(values) {
				text := value.Text
				if replaced, again := e.Replace[value.Item]; again {
					_, text, _ = strings.Cut(replaced, "=")
				}
				left, all := without(staticpod.Split(text), staticpod.Split(list))
				if !all {
					continue
				}
				// What a takeover adds where there was no --controllers is the default.
				if len(left) == 0 || len(values) == 1 && slices.Equal(left, []string{allControllers}) {
					e.Remove = append(e.Remove, value.Item)
					delete(e.Replace, value.Item)
				} else {
					e.Replace[value.Item] = Assign(name, strings.Join(left, ","))
				}
				break
			}
		}
		return nil
	}
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
func withKey(keyFile string) change {
	return func(m *staticpod.Manifest, e *staticpod.Edit) error {
		values, err := m.Flag(KeyFlag)
		if err != nil {
			return err
		}
		goes := func(v staticpod.Value) bool { return slices.Contains(e.Remove, v.Item) }
		i := slices.IndexFunc(values, goes)
		if i < 0 {
			return nil
		}
		item := values[i].Item
		if staticpod.Last(slices.DeleteFunc(values, goes)) != "" {
			return nil
		}
		if keyFile == "" {
			return fmt.Errorf("--%s has no value and had none before; name the key that signs tokens with --signing-key-file", KeyFlag)
		}
		e.Remove = slices.DeleteFunc(e.Remove, func(one int) bool { return one == item })
		e.Replace[item] = Assign(KeyFlag, keyFile)
		return nil
	}
}
