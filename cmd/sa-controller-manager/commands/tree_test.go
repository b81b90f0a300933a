// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
)

// TestOutputFlags wants every command to explain, to complete and to take the same formats.
func TestOutputFlags(t *testing.T) {
	t.Parallel()
	const table, text = `Format: "table", "json", "yaml" or "jsonpath=TEMPLATE".`, `Format: "text", "json", "yaml" or "jsonpath=TEMPLATE".`
	type output struct {
		usage   string
		formats []string
	}
	grants := output{
		`Format: "table", "json", "yaml" or "jsonpath=TEMPLATE"; "grant" prints the roles and bindings that grant what is missing, ` +
			`and nothing else.`,
		[]string{"table", "json", "yaml", "grant"},
	}
	wants := map[string]output{
		"version":        {text, []string{"text", "json", "yaml"}},
		"kubeadm status": {text, []string{"text", "json", "yaml"}},
		"tokens inspect": {text, []string{"text", "json", "yaml"}},
		"tokens audit": {`Format: "table", "wide", "json", "yaml", "html", "sarif" or "jsonpath=TEMPLATE".`,
			[]string{"table", "wide", "json", "yaml", "html", "sarif"}},
		"doctor":        {table, []string{"table", "json", "yaml"}},
		"keys init":     {table, []string{"table", "json", "yaml"}},
		"keys list":     {table, []string{"table", "json", "yaml"}},
		"keys rotate":   {table, []string{"table", "json", "yaml"}},
		"keys next":     {table, []string{"table", "json", "yaml"}},
		"keys rollback": {table, []string{"table", "json", "yaml"}},
		"keys prune":    {table, []string{"table", "json", "yaml"}},
		"keys forget":   {table, []string{"table", "json", "yaml"}},
		"keys revoke":   {table, []string{"table", "json", "yaml"}},
		"keys import":   {table, []string{"table", "json", "yaml"}},
		"keys jwks":     {`With --check, the format: "table", "json", "yaml" or "jsonpath=TEMPLATE".`, []string{"table", "json", "yaml"}},
		"preflight":     grants, "preflight signer": grants,
	}
	for _, cmd := range allCommands(newCommand(nil, io.Discard, io.Discard)) {
		testutil.Expect(t, cmd.Args != nil || cmd.Name() == "help", "%s takes any argument", cmd.CommandPath())
		flag := cmd.Flags().Lookup("output")
		if flag == nil {
			continue
		}
		name := strings.TrimPrefix(cmd.CommandPath(), options.ProgramName+" ")
		want, known := wants[name]
		delete(wants, name)
		testutil.Expect(t, known && flag.Usage == want.usage && flag.DefValue == want.formats[0] && flag.Shorthand == "o",
			"%s: -%s, --output %q by default, %q", name, flag.Shorthand, flag.DefValue, flag.Usage)
		line := strings.Fields(name)
		completed := command(t, slices.Concat([]string{"__complete"}, line, []string{"--output", ""})...).Stdout
		testutil.Check(t, name+": completed", strings.Join(want.formats, "\n")+"\n:4\n", completed)
		refused := command(t, append(line, "--output=none")...)
		if problem := `--output "none" must be one of "` + strings.Join(want.formats, `", "`) +
			`", "jsonpath=TEMPLATE"`; refused.Code != 1 ||
			!strings.Contains(refused.Stderr, problem+"\n") {
			t.Errorf("%s: %+v, want %q", name, refused, problem)
		}
	}
	testutil.Expect(t, len(wants) == 0, "there is no --output of %v", wants)
}

// allCommands are cmd and all below it.
func allCommands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, allCommands(sub)...)
	}
	return all
}

// TestManifestsFlags: the command line of every container below manifests/rendered is
// one that this binary accepts.
func TestManifestsFlags(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../manifests/rendered/*.yaml")
	testutil.Require(t, err == nil && len(files) >= 3, "rendered manifests: %v, %v", files, err)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			found := 0
			for _, container := range containers(t, file) {
				if container.Name == "sa-kms-signer" {
					continue // another program
				}
				testutil.Expect(t, slices.Equal(container.Command, []string{"/usr/local/bin/sa-controller-manager"}),
					"container %s runs %v",
					container.Name, container.Command)
				found++
				t.Run(container.Name, func(t *testing.T) { checkCommandLine(t, container.Args) })
			}
			testutil.Expect(t, found != 0, "no container")
		})
	}
}

// TestTimerFlags does the same for the service of systemd.
func TestTimerFlags(t *testing.T) {
	t.Parallel()
	unit := testutil.Get(os.ReadFile("../../../manifests/timer/sa-keys-rotate.service"))(t)
	found := 0
	for line := range strings.Lines(strings.ReplaceAll(string(unit), "\\\n", "")) {
		setting, command, _ := strings.Cut(line, "=")
		if strings.HasPrefix(setting, "ExecStart") {
			found++
			checkCommandLine(t, strings.Fields(command)[1:])
		}
	}
	testutil.Check(t, "commands", 3, found)
}

// checkCommandLine parses without running.
func checkCommandLine(t *testing.T, args []string) {
	t.Helper()
	if strings.HasPrefix(args[0], "-") {
		for _, problem := range clitest.Parse(t, args...).Validate() {
			t.Errorf("%v: %v", args, problem)
		}
		return
	}
	root := newCommand(nil, io.Discard, io.Discard)
	command, rest, err := root.Find(args)
	testutil.Require(t, err == nil, "%v: %v", args, err)
	testutil.Must(t, command.ParseFlags(rest))
	left := command.Flags().Args()
	testutil.Expect(t, len(left) == 0, "%v: %q is no sub-command", args, left)
}

// containers are those of the file's Pods and Deployments.
func containers(t *testing.T, file string) []corev1.Container {
	t.Helper()
	data := testutil.Get(os.ReadFile(file))(t)
	var all []corev1.Container
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var object struct {
			Kind string
			Spec struct {
				corev1.PodSpec `json:",inline"`

				Template struct{ Spec corev1.PodSpec }
			}
		}
		if err := yaml.Unmarshal(document, &object); err != nil ||
			!slices.Contains([]string{"Pod", "Deployment", "DaemonSet"}, object.Kind) {
			continue
		}
		for _, spec := range []corev1.PodSpec{object.Spec.PodSpec, object.Spec.Template.Spec} {
			all = slices.Concat(all, spec.InitContainers, spec.Containers)
		}
	}
	return all
}

func TestWebhookManifests(t *testing.T) {
	t.Parallel()
	oneCA, _, err := cert.GenerateSelfSignedCertKey("ca", nil, nil)
	testutil.Must(t, err)
	dir, ca := t.TempDir(), testutil.WriteFile(t, "ca.crt", oneCA)
	paths := []string{
		filepath.Join(dir, "policies", "sa-controller-manager.yaml"),
		filepath.Join(dir, "mutating", "sa-controller-manager.yaml"), filepath.Join(dir, "validating", "sa-controller-manager.yaml"),
	}
	args := []string{"webhook", "manifests", "--out-dir=" + dir, "--ca-bundle-file=" + ca, "--webhook-port=1234"}
	got := command(t, args...)
	testutil.Require(t, got.Code == 0 && got.Stdout == strings.Join(paths, "\n")+"\n", "%+v, want the paths of the files", got)
	for i, name := range []string{"mutate", "validate"} {
		content := testutil.Get(os.ReadFile(paths[i+1]))(t)
		// A validating webhook has no field that a mutating one lacks.
		var found admissionregistrationv1.MutatingWebhookConfiguration
		testutil.Must(t, yaml.UnmarshalStrict(content, &found))
		one := found.Webhooks[0] // behind it may be the one of the probe
		testutil.Check(t, "webhook of "+found.Kind, []string{
			"00-sa-controller-manager.static.k8s.io", name + ".sa-controller-manager.webhook", "https://127.0.0.1:1234/" + name,
			string(oneCA),
		}, []string{found.Name, one.Name, *one.ClientConfig.URL, string(one.ClientConfig.CABundle)})
	}
	key := "--ca-bundle-file=" + testutil.WriteFile(t, "ca.crt", []byte("no certificate"))
	if got := command(t, append(args, key)...); got.Code != 1 || !strings.Contains(got.Stderr, "expected certificates in PEM") {
		t.Errorf("%+v, want a refusal of the caBundle", got)
	}
}
