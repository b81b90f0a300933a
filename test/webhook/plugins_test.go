// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
)

// allPlugins are those that the binary has.
const allPlugins = "AlwaysAdmit, AlwaysDeny, DenyEscalatingExec, NamespaceLifecycle, SecurityContextDeny, ServiceAccount"

// TestKnowsEveryPlugin asks the real kube-apiserver which plugins it has. What an older supported one
// has is in testdata, as its --help prints it.
func TestKnowsEveryPlugin(t *testing.T) {
	t.Parallel()
	binary, err := devcluster.ControlPlaneBinary("kube-apiserver")
	testutil.Must(t, err)
	help, err := exec.CommandContext(limited(t), binary, "--help").Output()
	testutil.Must(t, err)
	found := regexp.MustCompile(`--enable-admission-plugins .*Comma-delimited list of admission plugins: ([^.]*)\.`).FindSubmatch(help)
	if found == nil {
		t.Fatal("kube-apiserver --help has no list of plugins")
	}
	older, err := os.ReadFile("testdata/plugins-v1.36.3.txt")
	testutil.Must(t, err)
	theirs := append(strings.Split(string(found[1]), ", "), strings.Fields(string(older))...)
	ours := strings.Split(allPlugins, ", ")
	for _, name := range theirs {
		if !slices.Contains(admission.InAPIServer(), name) && !slices.Contains(ours, name) {
			t.Errorf("plugin %s is neither here nor known to stay in kube-apiserver", name)
		}
	}
	for _, name := range admission.InAPIServer() {
		if !slices.Contains(theirs, name) {
			t.Errorf("no kube-apiserver has the plugin %s", name)
		}
	}
}
