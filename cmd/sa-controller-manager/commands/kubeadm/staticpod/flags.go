// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"fmt"
	"slices"
	"strings"
)

// Value is one occurrence of a flag.
type Value struct {
	// Item is the number of the string in the command.
	Item int
	Text string
}

// Flag returns every occurrence of a flag, in order. Underscores in names count as hyphens, as in every
// Kubernetes component. A missing value is an error, and so is one that the kubelet expands.
func (m *Manifest) Flag(name string) ([]Value, error) {
	var values []Value
	for i, one := range m.command {
		found, value, has := strings.Cut(one.value, "=")
		if FlagName(found) != name {
			continue
		}
		if !has {
			return nil, fmt.Errorf("its command has %s without \"=\"; a flag and its value must be one string", found)
		}
		if strings.Contains(value, "$(") {
			return nil, fmt.Errorf("its command has %s, where the kubelet expands a variable", one.value)
		}
		values = append(values, Value{Item: i, Text: value})
	}
	return values, nil
}

// FlagName is the name that Flag takes, of a flag as it is written. A shorthand is a name too.
func FlagName(text string) string {
	return strings.ReplaceAll(strings.TrimLeft(text, "-"), "_", "-")
}

// Given returns the names of all flags, each once, in the order of their first occurrence.
func (m *Manifest) Given() []string {
	var names []string
	for _, one := range m.command[1:] {
		text, _, _ := strings.Cut(one.value, "=")
		if name := FlagName(text); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Written returns the values of a flag as they are in the manifest, for display.
func (m *Manifest) Written(name string) string {
	var values []string
	for _, one := range m.command[1:] {
		if text, value, _ := strings.Cut(one.value, "="); FlagName(text) == name {
			values = append(values, value)
		}
	}
	return strings.Join(values, " ")
}

// Flags returns every occurrence of several flags, by name.
func (m *Manifest) Flags(names ...string) (map[string][]Value, error) {
	found := map[string][]Value{}
	for _, name := range names {
		values, err := m.Flag(name)
		if err != nil {
			return nil, err
		}
		found[name] = values
	}
	return found, nil
}

// Last returns the last value, which counts for a flag that is no list; "" if there is none.
func Last(values []Value) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1].Text
}

// List returns the elements of a list flag: later occurrences add to earlier ones.
func List(values []Value) []string {
	var list []string
	for _, value := range values {
		list = append(list, Split(value.Text)...)
	}
	return list
}

// Split splits a list. An empty value is an empty list.
func Split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
