// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Manifest is a parsed manifest of a static pod.
type Manifest struct {
	data    []byte
	root    *yaml.Node
	program string
	image   string
	command []item
}

// item is one string of the command.
type item struct {
	value string
	// line is the range of the physical line in the file, with its line end.
	line span
	// text is the range of the string with its quotes.
	text span
}

type span struct{ from, to int }

// Parse reads the manifest of a Pod whose one container runs program, which is the base
// name of the command's first string.
func Parse(data []byte, program string) (*Manifest, error) {
	if err := plainText(data); err != nil {
		return nil, err
	}
	root, err := oneDocument(data)
	if err != nil {
		return nil, err
	}
	if err := withoutAnchors(root); err != nil {
		return nil, err
	}
	container, err := onlyContainer(root)
	if err != nil {
		return nil, err
	}
	m := &Manifest{data: data, root: root, program: program, image: scalar(field(container, "image"))}
	if m.command, err = command(data, container); err != nil {
		return nil, err
	}
	return m, m.checkCommand()
}

// Image is the container's image, or "".
func (m *Manifest) Image() string { return m.image }

// Bytes is the manifest as it was given to Parse.
func (m *Manifest) Bytes() []byte { return m.data }

// Command is the container's command.
func (m *Manifest) Command() []string {
	values := make([]string, 0, len(m.command))
	for _, one := range m.command {
		values = append(values, one.value)
	}
	return values
}

// plainText refuses bytes for which the YAML parser and this package could count lines and columns
// differently: YAML has more line ends than the line feed.
func plainText(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("it is not UTF-8")
	}
	if bytes.HasPrefix(data, []byte("\ufeff")) {
		return errors.New("it begins with a byte order mark")
	}
	unixed := bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if bytes.ContainsAny(unixed, "\r\u0085\u2028\u2029") {
		return errors.New("it has line ends other than LF and CR LF")
	}
	return nil
}

func oneDocument(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, more yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty")
	} else if err != nil {
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one YAML document")
	}
	// The decoder finds a key that is given twice only when it fills a Go value.
	var discarded map[string]any
	if err := document.Decode(&discarded); err != nil {
		return nil, fmt.Errorf("it is not a YAML object: %w", err)
	}
	root := document.Content[0]
	if kind := scalar(field(root, "kind")); kind != "Pod" {
		return nil, fmt.Errorf("its kind is %q, want \"Pod\"", kind)
	}
	return root, nil
}

// withoutAnchors refuses text that is used in more than one place.
func withoutAnchors(node *yaml.Node) error {
	if node.Anchor != "" || node.Kind == yaml.AliasNode {
		return fmt.Errorf("line %d has a YAML anchor or alias", node.Line)
	}
	for _, child := range node.Content {
		if err := withoutAnchors(child); err != nil {
			return err
		}
	}
	return nil
}

func onlyContainer(root *yaml.Node) (*yaml.Node, error) {
	containers := field(field(root, "spec"), "containers")
	if containers == nil || containers.Kind != yaml.SequenceNode || len(containers.Content) == 0 {
		return nil, errors.New("it has no list spec.containers")
	}
	if n := len(containers.Content); n > 1 {
		return nil, fmt.Errorf("it has %d containers, want one", n)
	}
	return containers.Content[0], nil
}

func command(data []byte, container *yaml.Node) ([]item, error) {
	if args := field(container, "args"); args != nil && len(args.Content) > 0 {
		return nil, fmt.Errorf("line %d has args; flags are expected in command alone", args.Line)
	}
	list := field(container, "command")
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return nil, errors.New("its container has no list called command")
	}
	if list.Style&yaml.FlowStyle != 0 {
		return nil, fmt.Errorf("line %d has the command in one line, [like, this]; it must be a block list", list.Line)
	}
	starts := lineStarts(data)
	items := make([]item, 0, len(list.Content))
	for _, node := range list.Content {
		one, err := locate(data, starts, node)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", node.Line, err)
		}
		items = append(items, one)
	}
	return items, nil
}

// checkCommand refuses a command whose strings are not all flags of the program.
func (m *Manifest) checkCommand() error {
	if first := path.Base(m.command[0].value); first != m.program {
		return fmt.Errorf("its command runs %q, want %q; a shell or a wrapper around it is not understood", first, m.program)
	}
	for _, one := range m.command[1:] {
		if !strings.HasPrefix(one.value, "-") || one.value == "--" {
			return fmt.Errorf("its command has the string %q, which is no flag; a flag and its value must be one string, --flag=value", one.value)
		}
	}
	return nil
}

// field returns the value of a key of a mapping, or nil.
func field(node *yaml.Node, key string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

func scalar(node *yaml.Node) string {
	if node == nil || node.Kind != yaml.ScalarNode {
		return ""
	}
	return node.Value
}
