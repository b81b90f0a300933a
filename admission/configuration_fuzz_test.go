// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzConfiguration reads anything as the file of --admission-control-config-file. It is refused
// with the name of the file, or it gives every plugin of it exactly one configuration and says the
// same once it is written again.
func FuzzConfiguration(f *testing.F) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
	for _, seed := range []string{
		"", "{", head, head + "plugins:\n- name: A\n  configuration: {x: 1}\n- {name: B, path: b.yaml}\n",
		head + "plugins: [{name: A, path: /etc/passwd, configuration: null}]", head + "plugins: [{name: A}, {name: A}]",
		head + "plugins: [{name: ''}]", head + "Plugins: []", head + "kind: x", strings.ReplaceAll(head, "v1", "v2"),
		head + "plugins: &a [{name: A, configuration: &b {c: *b}}]", head + "plugins: [{name: A, configuration: 2026-11-21}]",
	} {
		f.Add([]byte(seed))
	}
	file := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		configuration, err := ReadConfiguration(file)
		if err != nil {
			if configuration != nil || !strings.HasPrefix(err.Error(), "read admission configuration "+file+": ") {
				t.Errorf("refused with %v and %q", configuration, err)
			}
			return
		}
		seen := map[string]bool{}
		for _, plugin := range configuration.plugins {
			if plugin.Name == "" || seen[plugin.Name] {
				t.Errorf("plugin %q has no name, or is there twice", plugin.Name)
			}
			seen[plugin.Name] = true
			if !plugin.inPlace() && plugin.Path != "" {
				continue // what its file says is not this one's matter
			}
			reader, err := configuration.For(plugin.Name)
			if err != nil || (reader != nil) != plugin.inPlace() {
				t.Fatalf("plugin %q: %v, %v", plugin.Name, reader, err)
			}
			if reader == nil {
				continue
			}
			if got, err := io.ReadAll(reader); err != nil || !json.Valid(got) {
				t.Errorf("plugin %q is configured with %q, %v", plugin.Name, got, err)
			}
		}
		again, err := json.Marshal(admissionConfiguration{APIVersion: configurationVersions()[0], Kind: "AdmissionConfiguration", Plugins: configuration.plugins})
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseConfiguration(again)
		if err != nil || len(back) != len(configuration.plugins) {
			t.Fatalf("%s\nis not read again: %v", again, err)
		}
		for i, plugin := range back {
			if was := configuration.plugins[i]; plugin.Name != was.Name || plugin.Path != was.Path || !sameJSON(plugin.Configuration, was.Configuration) {
				t.Errorf("%v was read as %v again", was, plugin)
			}
		}
	})
}

// sameJSON takes no value for null.
func sameJSON(a, b json.RawMessage) bool {
	compact := func(raw json.RawMessage) string {
		var out bytes.Buffer
		if len(raw) == 0 || json.Compact(&out, raw) != nil {
			return "null"
		}
		return out.String()
	}
	return compact(a) == compact(b)
}
