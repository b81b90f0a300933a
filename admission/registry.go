// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Factory builds a plugin from its own configuration, which is YAML or JSON, or nil if the plugin
// has none.
type Factory func(config io.Reader) (Plugin, error)

// Registry maps the names of plugins to their factories. It is an explicit list.
type Registry map[string]Factory

// Check returns nil if name is registered, and otherwise an error that lists the registered names.
func (r Registry) Check(name string) error {
	if _, ok := r[name]; ok {
		return nil
	}
	return fmt.Errorf("admission plugin %q is not one of %s; every other plugin of kube-apiserver stays in kube-apiserver, in its own flags",
		name, strings.Join(slices.Sorted(maps.Keys(r)), ", "))
}

// Build builds the named plugins, each with its part of configuration (nil means none), and chains
// them in the order of names. Metrics may be nil.
func (r Registry) Build(names []string, configuration *Configuration, metrics *Metrics) (Chain, error) {
	chain := make(Chain, 0, len(names))
	for _, name := range names {
		if err := r.Check(name); err != nil {
			return nil, err
		}
		config, err := configuration.For(name)
		if err != nil {
			return nil, err
		}
		plugin, err := r[name](config)
		if err != nil {
			return nil, configuration.Error(name, err)
		}
		chain = append(chain, ChainEntry{Name: name, Plugin: plugin, Metrics: metrics})
	}
	return chain, nil
}
