// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Mount is a directory of the host that the container sees under the same path, read
// only. The kubelet makes it if it is not there.
type Mount struct{ Name, Path string }

// Mounted reports whether the manifest has the volume and its mount. One without the other is an error.
func (m *Manifest) Mounted(mount Mount) (bool, error) {
	found := 0
	for _, list := range m.mountLists() {
		if slices.ContainsFunc(items(list.node), mount.is) {
			found++
		}
	}
	if found == 1 {
		return false, fmt.Errorf("the volume %q and its mount are not both of %s", mount.Name, mount.Path)
	}
	return found == 2, nil
}

// Remount adds to an edit those of the mounts that the manifest lacks, or if they are unwanted removes
// those that it has.
func (m *Manifest) Remount(e Edit, wanted bool, mounts ...Mount) (Edit, error) {
	list := &e.Unmount
	if wanted {
		list = &e.Mount
	}
	for _, mount := range mounts {
		mounted, err := m.Mounted(mount)
		if err != nil {
			return Edit{}, err
		}
		if mounted != wanted {
			*list = append(*list, mount)
		}
	}
	return e, nil
}

// mountList is one of the two lists that a mount is in.
type mountList struct {
	key  string
	node *yaml.Node
	// text is an item of it, a line each.
	text func(Mount) []string
}

// mountLists are in the order of kubeadm's manifests, which is alphabetical.
func (m *Manifest) mountLists() []mountList {
	spec := field(m.root, "spec")
	container := field(spec, "containers").Content[0]
	return []mountList{
		{"volumeMounts", field(container, "volumeMounts"), func(mount Mount) []string {
			return []string{"mountPath: " + mount.Path, "name: " + mount.Name, "readOnly: true"}
		}},
		{"volumes", field(spec, "volumes"), func(mount Mount) []string {
			return []string{"hostPath:", "  path: " + mount.Path, "  type: DirectoryOrCreate", "name: " + mount.Name}
		}},
	}
}

// place is where an item of a block list begins, and how it is written there.
type place struct {
	at     int
	bullet string
}

// placeOf finds an item, which must begin on a line of its own.
func (m *Manifest) placeOf(item *yaml.Node) (place, error) {
	start := lineStarts(m.data)[item.Line-1]
	from := start + item.Column - 1
	if item.Kind != yaml.MappingNode || item.Style&yaml.FlowStyle != 0 || from > len(m.data) || !bullet.Match(m.data[start:from]) {
		return place{}, fmt.Errorf("line %d: an item of the list must be an object that begins on a line of its own, after a dash", item.Line)
	}
	return place{at: start, bullet: string(m.data[start:from])}, nil
}

// render is an item the way that it is written at a place.
func (m *Manifest) render(p place, lines []string) []byte {
	var text []byte
	prefix := p.bullet
	for _, line := range lines {
		text = slices.Concat(text, []byte(prefix), []byte(line), m.lineEnd())
		prefix = strings.Repeat(" ", len(p.bullet))
	}
	return text
}

// mounted puts the mount first in both lists: the place of a first item is known for
// sure, whatever follows the last one.
func (m *Manifest) mounted(mount Mount) ([]byte, error) {
	data := slices.Clone(m.data)
	for _, list := range backwards(m.mountLists()) {
		found := items(list.node)
		if len(found) == 0 {
			return nil, fmt.Errorf("it has no list %s, to which one more could be added", list.key)
		}
		p, err := m.placeOf(found[0])
		if err != nil {
			return nil, err
		}
		data = slices.Insert(data, p.at, m.render(p, list.text(mount))...)
	}
	return data, nil
}

// unmounted is the reverse of mounted, wherever in the lists the items are by now.
func (m *Manifest) unmounted(mount Mount) ([]byte, error) {
	data := slices.Clone(m.data)
	for _, list := range backwards(m.mountLists()) {
		for _, item := range slices.Backward(items(list.node)) {
			if !mount.is(item) {
				continue
			}
			p, err := m.placeOf(item)
			if err != nil {
				return nil, err
			}
			text := m.render(p, list.text(mount))
			if !bytes.HasPrefix(m.data[p.at:], text) {
				return nil, fmt.Errorf("line %d: the item %s is not as it was written; take it out by hand", item.Line, mount.Name)
			}
			data = slices.Delete(data, p.at, p.at+len(text))
		}
	}
	return data, nil
}

// backwards are the lists from the end of the file on, so that positions stay right.
func backwards(lists []mountList) []mountList {
	slices.SortFunc(lists, func(a, b mountList) int { return lineOf(b.node) - lineOf(a.node) })
	return lists
}

func lineOf(node *yaml.Node) int {
	if node == nil {
		return 0
	}
	return node.Line
}

func items(list *yaml.Node) []*yaml.Node {
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil
	}
	return list.Content
}

// is reports whether an item of one of the two lists is the mount's. With another path it is the operator's.
func (mount Mount) is(item *yaml.Node) bool {
	return scalar(field(item, "name")) == mount.Name &&
		mount.Path == scalar(field(item, "mountPath"))+scalar(field(field(item, "hostPath"), "path"))
}

// applyMount changes both lists, or nothing.
func (m *Manifest) applyMount(mount Mount, change func(Mount) ([]byte, error)) (*Manifest, error) {
	data, err := change(mount)
	if err != nil {
		return nil, err
	}
	edited, err := Parse(data, m.program)
	if err != nil {
		return nil, fmt.Errorf("the edited manifest would not be understood: %w", err)
	}
	if !same(m.root, edited.root, func(key string, value *yaml.Node) *yaml.Node {
		if key == "volumes" || key == "volumeMounts" {
			return without(value, mount)
		}
		return value
	}) {
		return nil, errors.New("something other than the mount would change")
	}
	return edited, nil
}

// same compares two manifests, with what but makes of the value of each key.
func same(a, b *yaml.Node, but func(key string, value *yaml.Node) *yaml.Node) bool {
	if a.Kind != b.Kind || a.Tag != b.Tag || a.Value != b.Value || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		x, y := a.Content[i], b.Content[i]
		if a.Kind == yaml.MappingNode && i%2 == 1 {
			x, y = but(a.Content[i-1].Value, x), but(b.Content[i-1].Value, y)
		}
		if !same(x, y, but) {
			return false
		}
	}
	return true
}

func without(list *yaml.Node, mount Mount) *yaml.Node {
	rest := *list
	rest.Content = slices.DeleteFunc(slices.Clone(list.Content), mount.is)
	return &rest
}
