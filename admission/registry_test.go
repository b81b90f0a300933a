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
	cases := map[string]struct {
		reason  string
		plugins string
		want    string // how A is configured
		refusal string
	}{
		"nothing configured":  {reason: "nil", want: "none"},
		"in place":            {reason: "as JSON", plugins: "- name: A\n  configuration: {x: 1}\n", want: `{"x":1}`},
		"in a file":           {reason: "relative to the configuration file", plugins: "- {name: A, path: a.yaml}\n", want: "from: file"},
		"in a file, absolute": {reason: "taken as it is", plugins: "- {name: A, path: " + dir + "/a.yaml}\n", want: "from: file"},
		"both": {
			reason: "in place wins, as upstream", plugins: "- {name: A, path: a.yaml, configuration: {x: 1}}\n", want: `{"x":1}`,
		},
		"null in place": {reason: "it is not there", plugins: "- {name: A, path: a.yaml, configuration: null}\n", want: "from: file"},
		"plugins of others": {
			reason: "the apiserver's own file can be given", plugins: "- {name: PodSecurity, path: nosuch.yaml}\n", want: "none",
		},
		"no such file": {
			reason: "the error names plugin and both files", plugins: "- {name: A, path: nosuch.yaml}\n",
			refusal: `admission plugin "A": read its configuration, named in DIR/config.yaml: open DIR/nosuch.yaml: no such file or directory`,
		},
		"bad in place": {
			reason: "the error names plugin and file", plugins: "- {name: A, configuration: {bad: 1}}\n",
			refusal: `admission plugin "A", configured in DIR/config.yaml: boom`,
		},
		"bad file": {
			reason: "the error names plugin and file", plugins: "- {name: A, path: bad.yaml}\n",
			refusal: `admission plugin "A", configured in DIR/bad.yaml: boom`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var configuration *Configuration
			if tc.plugins != "" {
				var err error
				configuration, err = ReadConfiguration(write(t, dir, "config.yaml", head+tc.plugins))
				testutil.Must(t, err)
			}
			chain, err := registryOf("A", "B").Build([]string{"B", "A"}, configuration, nil)
			testutil.Check(t, tc.reason, tc.refusal, strings.ReplaceAll(text(err), dir, "DIR"))
			if tc.refusal != "" {
				return
			}
			testutil.Check(t, tc.reason+": order", []string{"B", "A"}, names(chain))
			testutil.Check(t, tc.reason+": B", "none", chain[0].Plugin.(configuredPlugin).config)
			testutil.Check(t, tc.reason+": A", tc.want, chain[1].Plugin.(configuredPlugin).config)
		})
	}
	_, err := registryOf("A", "B").Build([]string{"A", "C"}, nil, nil)
	testutil.Check(t, "unknown plugin",
		`admission plugin "C" is not one of A, B; every other plugin of kube-apiserver stays in kube-apiserver, in its own flags`, text(err))
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

func TestSelectionNames(t *testing.T) {
	t.Parallel()
	order, on := []string{"A", "B", "C", "D"}, []string{"B", "D"}
	cases := map[string]struct {
		reason    string
		selection Selection
		want      []string
	}{
		"no flag": {reason: "what is on by default", want: []string{"B", "D"}},
		"enable": {
			reason: "in addition, in our order", selection: Selection{Enable: []string{"C", "A"}}, want: []string{"A", "B", "C", "D"},
		},
		"disable": {reason: "taken off", selection: Selection{Disable: []string{"B", "A"}}, want: []string{"D"}},
		"the same": {
			reason: "enabled wins, as upstream, if validation is passed by", selection: Selection{Enable: []string{"B"}, Disable: []string{"B"}},
			want: []string{"B", "D"},
		},
		"elsewhere": {
			reason: "they run in kube-apiserver", selection: Selection{Exact: []string{"NamespaceExists", "D", "LimitRanger", "A"}},
			want: []string{"D", "A"},
		},
		"exact and none": {reason: "given and empty", selection: Selection{Exact: []string{}}, want: []string{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			testutil.Check(t, tc.reason, tc.want, tc.selection.Names(order, on))
		})
	}
}

func TestSelectionValidate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		selection Selection
		want      []string
	}{
		"no flag": {reason: "fine"},
		"exact and more": {
			reason: "they exclude each other", selection: Selection{Exact: []string{}, Disable: []string{}},
			want: []string{"--admission-control and --enable-admission-plugins/--disable-admission-plugins are mutually exclusive"},
		},
		"unknown": {
			reason: "the flag is named, and all mistakes at once", selection: Selection{Enable: []string{"X", "Z"}, Disable: []string{"Y"}},
			want: []string{
				`--enable-admission-plugins: admission plugin "X" is not one of A, B`,
				`--enable-admission-plugins: admission plugin "Z" is not one of A, B`,
				`--disable-admission-plugins: admission plugin "Y" is not one of A, B`,
			},
		},
		"elsewhere exact": {
			reason: "as Kubernetes 1.9 had it", selection: Selection{Exact: []string{"NamespaceExists", "A", "LimitRanger", "ResourceQuota"}},
		},
		"unknown exact": {
			reason: "the flag is named", selection: Selection{Exact: []string{"X"}},
			want: []string{`--admission-control: admission plugin "X" is not one of A, B`},
		},
		"overlap": {
			reason: "which is meant?", selection: Selection{Enable: []string{"A"}, Disable: []string{"A"}},
			want: []string{`--enable-admission-plugins and --disable-admission-plugins both name "A"`},
		},
		"exact and twice": {
			reason: "which place is meant?", selection: Selection{Exact: []string{"A", "B", "A"}},
			want: []string{`--admission-control names "A" more than once`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range tc.selection.Validate(registryOf("A", "B")) {
				problem, _, _ := strings.Cut(err.Error(), "; every other")
				got = append(got, problem)
			}
			testutil.Check(t, tc.reason, tc.want, got)
		})
	}
}
