// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// configurationVersions lists the versions that kube-apiserver v1.37.2 reads (k8s.io/apiserver
// pkg/apis/apiserver). They do not differ.
func configurationVersions() []string {
	return []string{"apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1"}
}

// Configuration is the file of --admission-control-config-file: kube-apiserver's
// AdmissionConfiguration. The apiserver's own file can be used unchanged: entries of plugins that
// do not run here are ignored. A nil Configuration is empty. It is immutable.
type Configuration struct {
	file    string
	plugins []pluginConfiguration
}

// admissionConfiguration is the file's content.
type admissionConfiguration struct {
	APIVersion string                `json:"apiVersion"`
	Kind       string                `json:"kind"`
	Plugins    []pluginConfiguration `json:"plugins"`
}

// pluginConfiguration holds the configuration of a plugin, inline or as the path of a file. Inline
// wins, as upstream.
type pluginConfiguration struct {
	Name          string          `json:"name"`
	Path          string          `json:"path"`
	Configuration json.RawMessage `json:"configuration"`
}

// ReadConfiguration reads the file. With an empty name it returns nil. Paths in it are relative to
// its own directory. Unknown and duplicate fields are errors.
func ReadConfiguration(file string) (*Configuration, error) {
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read admission configuration: %w", err)
	}
	plugins, err := parseConfiguration(content)
	if err != nil {
		return nil, fmt.Errorf("read admission configuration %s: %w", file, err)
	}
	return &Configuration{file: file, plugins: plugins}, nil
}

func parseConfiguration(content []byte) ([]pluginConfiguration, error) {
	var parsed admissionConfiguration
	if err := yaml.UnmarshalStrict(content, &parsed); err != nil {
		return nil, err
	}
	if parsed.Kind != "AdmissionConfiguration" || !slices.Contains(configurationVersions(), parsed.APIVersion) {
		return nil, fmt.Errorf("found apiVersion %q, kind %q; expected apiVersion %q, kind %q",
			parsed.APIVersion, parsed.Kind, configurationVersions()[0], "AdmissionConfiguration")
	}
	for i, plugin := range parsed.Plugins {
		if plugin.Name == "" {
			return nil, fmt.Errorf("plugins[%d] has no name", i)
		}
		if slices.IndexFunc(parsed.Plugins, func(p pluginConfiguration) bool { return p.Name == plugin.Name }) < i {
			return nil, fmt.Errorf("plugin %q is configured twice", plugin.Name)
		}
	}
	return parsed.Plugins, nil
}

// For returns the configuration of the named plugin, as YAML or JSON, or nil if it has none.
func (c *Configuration) For(name string) (io.Reader, error) {
	plugin, _ := c.find(name)
	if plugin.inPlace() {
		return bytes.NewReader(plugin.Configuration), nil
	}
	if plugin.Path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(c.absolute(plugin.Path))
	if err != nil {
		return nil, fmt.Errorf("admission plugin %q: read its configuration, named in %s: %w", name, c.file, err)
	}
	return bytes.NewReader(content), nil
}

// Error wraps err with the name of the plugin and the file that configures it.
func (c *Configuration) Error(name string, err error) error {
	origin := ""
	if plugin, ok := c.find(name); ok {
		origin = ", configured in " + c.file
		if !plugin.inPlace() && plugin.Path != "" {
			origin = ", configured in " + c.absolute(plugin.Path)
		}
	}
	return fmt.Errorf("admission plugin %q%s: %w", name, origin, err)
}

func (c *Configuration) find(name string) (pluginConfiguration, bool) {
	if c == nil {
		return pluginConfiguration{}, false
	}
	at := slices.IndexFunc(c.plugins, func(p pluginConfiguration) bool { return p.Name == name })
	if at < 0 {
		return pluginConfiguration{}, false
	}
	return c.plugins[at], true
}

func (c *Configuration) absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(c.file), path)
}

func (p pluginConfiguration) inPlace() bool {
	return len(p.Configuration) > 0 && !bytes.Equal(p.Configuration, []byte("null"))
}
