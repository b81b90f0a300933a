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

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
)

// TestManifestsFlags: the command line of every container below manifests/rendered is
// one that this binary accepts.
func TestManifestsFlags(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../manifests/rendered/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("rendered manifests: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			found := 0
			for _, container := range containers(t, file) {
				if container.Name == "sa-kms-signer" {
					continue // another program
				}
				if !slices.Equal(container.Command, []string{"/usr/local/bin/sa-controller-manager"}) {
					t.Errorf("container %s runs %v", container.Name, container.Command)
				}
				found++
				t.Run(container.Name, func(t *testing.T) { checkCommandLine(t, container.Args) })
			}
			if found == 0 {
				t.Error("no container")
			}
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
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	testutil.Must(t, command.ParseFlags(rest))
	if left := command.Flags().Args(); len(left) > 0 {
		t.Errorf("%v: %q is no sub-command", args, left)
	}
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
		if err := yaml.Unmarshal(document, &object); err != nil || !slices.Contains([]string{"Pod", "Deployment", "DaemonSet"}, object.Kind) {
			continue
		}
		for _, spec := range []corev1.PodSpec{object.Spec.PodSpec, object.Spec.Template.Spec} {
			all = slices.Concat(all, spec.InitContainers, spec.Containers)
		}
	}
	return all
}
