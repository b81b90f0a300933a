// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"bytes"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Edit is a change of a command. Numbers are indices into Command. The first string, the program, stays.
type Edit struct {
	Remove  []int
	Replace map[int]string
	// Insert has new strings before the given index, each on a line like the one at that index.
	Insert map[int][]string
	// Append has new strings at the end, each on a line like the last one.
	Append []string
	// Mount is added to the volumes of the Pod and the mounts of the container, Unmount is removed
	// from them. It is an error if the existing text is not what Mount would write.
	Mount, Unmount []Mount
}

// Apply returns the edited manifest. It is an error if anything else would change.
func (m *Manifest) Apply(e Edit) (*Manifest, error) {
	edited, err := m.applyCommand(e)
	for _, mount := range e.Mount {
		if err == nil {
			edited, err = edited.applyMount(mount, edited.mounted)
		}
	}
	for _, mount := range e.Unmount {
		if err == nil {
			edited, err = edited.applyMount(mount, edited.unmounted)
		}
	}
	return edited, err
}

func (m *Manifest) applyCommand(e Edit) (*Manifest, error) {
	if len(e.Remove) == 0 && len(e.Replace) == 0 && len(e.Insert) == 0 && len(e.Append) == 0 {
		return m, nil
	}
	edited, err := Parse(m.edited(e), m.program)
	if err != nil {
		return nil, fmt.Errorf("the edited manifest would not be understood: %w", err)
	}
	if want := e.expected(m.Command()); !slices.Equal(want, edited.Command()) {
		return nil, fmt.Errorf("the command would become %q, want %q", edited.Command(), want)
	}
	if !same(m.root, edited.root, withoutCommand) {
		return nil, fmt.Errorf("something other than the command would change")
	}
	return edited, nil
}

func (e Edit) expected(before []string) []string {
	var after []string
	for i, value := range before {
		after = append(after, e.Insert[i]...)
		if slices.Contains(e.Remove, i) {
			continue
		}
		if replaced, ok := e.Replace[i]; ok {
			value = replaced
		}
		after = append(after, value)
	}
	return append(after, e.Append...)
}

// edited applies the changes from the end to the beginning, so that earlier positions stay valid.
func (m *Manifest) edited(e Edit) []byte {
	data := slices.Clone(m.data)
	// Append first, while the last line still shows the style.
	last := m.command[len(m.command)-1]
	data = slices.Insert(data, last.line.to, m.lines(last, e.Append)...)
	for i, one := range slices.Backward(m.command) {
		if replacement, ok := e.Replace[i]; slices.Contains(e.Remove, i) {
			data = withoutLine(data, one.line)
		} else if ok {
			text := quote(string(m.data[one.text.from:one.text.to]), replacement)
			data = slices.Replace(data, one.text.from, one.text.to, []byte(text)...)
		}
		for _, value := range slices.Backward(e.Insert[i]) {
			prefix := m.data[one.line.from:one.text.from]
			data = slices.Insert(data, one.line.from, slices.Concat(prefix, []byte(value), m.lineEnd())...)
		}
	}
	return data
}

// lines returns new lines in the style of last, to insert where its line ends.
func (m *Manifest) lines(last item, values []string) []byte {
	line := m.data[last.line.from:last.line.to]
	prefix := m.data[last.line.from:last.text.from]
	end := m.lineEnd()
	var added []byte
	for _, value := range values {
		if bytes.HasSuffix(line, []byte("\n")) {
			added = slices.Concat(added, prefix, []byte(value), end)
			continue
		}
		// The file ends without a line end, and stays so.
		added = slices.Concat(added, end, prefix, []byte(value))
	}
	return added
}

// lineEnd returns the line end of the file's first line.
func (m *Manifest) lineEnd() []byte {
	first, _, _ := bytes.Cut(m.data, []byte("\n"))
	if bytes.HasSuffix(first, []byte("\r")) {
		return []byte("\r\n")
	}
	return []byte("\n")
}

// withoutLine is the reverse of lines.
func withoutLine(data []byte, line span) []byte {
	if line.to < len(data) || bytes.HasSuffix(data, []byte("\n")) {
		return slices.Delete(data, line.from, line.to)
	}
	rest := bytes.TrimSuffix(data[:line.from], []byte("\n"))
	return bytes.TrimSuffix(rest, []byte("\r"))
}

// withoutCommand is for same.
func withoutCommand(key string, value *yaml.Node) *yaml.Node {
	if key == "command" && value.Kind == yaml.SequenceNode {
		return &yaml.Node{}
	}
	return value
}
