// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

// registryOf has a plugin of each name, which says in its refusals how it was configured.
func registryOf(names ...string) Registry {
	registry := Registry{}
	for _, name := range names {
		registry[name] = configured
	}
	return registry
}

// configuredPlugin keeps its configuration, to show it.
type configuredPlugin struct {
	Plugin
	config string
}

func configured(config io.Reader) (Plugin, error) {
	if config == nil {
		return configuredPlugin{validates(allow), "none"}, nil
	}
	content, err := io.ReadAll(config)
	if err == nil && strings.Contains(string(content), "bad") {
		err = errBoom
	}
	return configuredPlugin{validates(allow), strings.TrimSpace(string(content))}, err
}

func TestBuild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.yaml", "from: file")
	write(t, dir, "bad.yaml", "bad: true")
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	absolute := filepath.Join(dir, "a.yaml")
	cases := map[string]struct {
		reason  string
		names   []string
		plugins string
		want    map[string]string
		refusal string
	}{
		"nothing configured": {reason: "nil for all", names: []string{"A", "B"}, want: map[string]string{"A": "none", "B": "none"}},
		"in place": {
			reason: "as JSON", names: []string{"A", "B"}, plugins: "- name: A\n  configuration: {x: 1}\n",
			want: map[string]string{"A": `{"x":1}`, "B": "none"},
		},
		"in a file": {
			reason: "relative to the configuration file", names: []string{"A"}, plugins: "- {name: A, path: a.yaml}\n",
			want: map[string]string{"A": "from: file"},
		},
		"in a file, absolute": {
			reason: "taken as it is", names: []string{"A"}, plugins: "- {name: A, path: " + absolute + "}\n",
			want: map[string]string{"A": "from: file"},
		},
		"both": {
			reason: "in place wins, as upstream", names: []string{"A"}, plugins: "- {name: A, path: a.yaml, configuration: {x: 1}}\n",
			want: map[string]string{"A": `{"x":1}`},
		},
		"null in place": {
			reason: "it is not there", names: []string{"A"}, plugins: "- {name: A, path: a.yaml, configuration: null}\n",
			want: map[string]string{"A": "from: file"},
		},
		"plugins of others": {
			reason: "the apiserver's own file can be given", names: []string{"A"}, plugins: "- {name: PodSecurity, path: nosuch.yaml}\n",
			want: map[string]string{"A": "none"},
		},
		"no such file": {
			reason: "the error names plugin and both files", names: []string{"A"}, plugins: "- {name: A, path: nosuch.yaml}\n",
			refusal: `admission plugin "A": read its configuration, named in DIR/config.yaml: open DIR/nosuch.yaml: no such file or directory`,
		},
		"bad in place": {
			reason: "the error names plugin and file", names: []string{"A"}, plugins: "- {name: A, configuration: {bad: 1}}\n",
			refusal: `admission plugin "A", configured in DIR/config.yaml: boom`,
		},
		"bad file": {
			reason: "the error names plugin and file", names: []string{"A"}, plugins: "- {name: A, path: bad.yaml}\n",
			refusal: `admission plugin "A", configured in DIR/bad.yaml: boom`,
		},
		"unknown plugin": {reason: "enabling it is an error", names: []string{"A", "C"},
			refusal: `admission plugin "C" is not one of A, B; every other plugin of kube-apiserver stays in kube-apiserver, in its own flags`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := ""
			if tc.plugins != "" {
				file = write(t, dir, "config-"+strings.ReplaceAll(name, " ", "-")+".yaml", head+tc.plugins)
			}
			configuration, err := ReadConfiguration(file)
			testutil.Must(t, err)
			chain, err := registryOf("A", "B").Build(tc.names, configuration, nil)
			said := strings.ReplaceAll(strings.ReplaceAll(text(err), file, "DIR/config.yaml"), dir, "DIR")
			if file == "" {
				said = text(err)
			}
			testutil.Check(t, tc.reason, tc.refusal, said)
			if tc.refusal != "" {
				return
			}
			got := map[string]string{}
			for _, link := range chain {
				got[link.Name] = link.Plugin.(configuredPlugin).config
			}
			testutil.Check(t, tc.reason, tc.want, got)
			testutil.Check(t, tc.reason+": order", tc.names, chain.Names())
		})
	}
}

func TestReadConfiguration(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, content, refusal string
	}{
		"v1alpha1": {
			reason: "the older one", content: "apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: AdmissionConfiguration\nplugins: []\n",
		},
		"JSON": {
			reason: "JSON is YAML", content: `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AdmissionConfiguration","plugins":[{"name":"A"}]}`,
		},
		"other version": {reason: "both are named", content: "apiVersion: apiserver.config.k8s.io/v2\nkind: AdmissionConfiguration\n",
			refusal: `found apiVersion "apiserver.config.k8s.io/v2", kind "AdmissionConfiguration"; expected apiVersion ` +
				`"apiserver.config.k8s.io/v1", kind "AdmissionConfiguration"`},
		"other kind": {reason: "a file for another flag", content: "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n",
			refusal: `kind "TracingConfiguration"; expected`},
		"unknown field": {
			reason: "strict", content: "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugin: []\n",
			refusal: `unknown field "plugin"`,
		},
		"no name": {
			reason: "the place is named", content: "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- path: x\n",
			refusal: "plugins[0] has no name",
		},
		"same name twice": {
			reason:  "which one counts is unclear",
			content: "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: A\n- name: A\n",
			refusal: `plugin "A" is configured twice`,
		},
		"not YAML": {reason: "the file is named", content: "\t{", refusal: "yaml: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := write(t, t.TempDir(), "config.yaml", tc.content)
			_, err := ReadConfiguration(file)
			testutil.CheckError(t, tc.reason, tc.refusal, err)
			if err != nil {
				testutil.CheckContains(t, tc.reason, "read admission configuration "+file+": ", err.Error())
			}
		})
	}
	if _, err := ReadConfiguration(filepath.Join(t.TempDir(), "nosuch")); err == nil {
		t.Error("a file that is not there is no error")
	}
	if none, err := ReadConfiguration(""); none != nil || err != nil {
		t.Errorf("no file: got %v, %v", none, err)
	}
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	testutil.Must(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}
